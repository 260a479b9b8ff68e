"""The experiments of Li, Pérez-Suay, Camps-Valls and Sejdinovic beside their printed numbers."""
