"""Fitted predictors for other programs: ONNX."""

from scalefair.exporting.onnx import to_onnx

__all__ = ["to_onnx"]
