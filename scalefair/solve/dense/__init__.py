"""The dense n×n reference: fair ridge regression and the fair Gaussian process."""
