"""How well features tell labels apart, in closed form: hidden-state variability, H-score, LogME.

Plain arrays in, one number out. Features are (rows, width), in double precision. Labels are class numbers (rows,), or
values for LogME.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_MOST_STEPS = 200
_CLOSE = 1e-10
_SMALLEST = 1e-12


def variability(features: Floats, classes: NDArray[np.int64]) -> float:
    """Variability within classes over that between them: tr(Σ_w Σ_b†) / number of classes (Xie 2022).

    Both covariances are means over classes, so that every class counts the same. Low: the features already tell the
    classes apart.
    """
    known = np.unique(classes)
    means = np.stack([features[classes == one].mean(0) for one in known])
    apart = (means - means.mean(0)) / np.sqrt(len(known))  # (classes, width): Σ_b is the product of it with itself
    # Σ_b has at most one dimension per class: its pseudo-inverse comes from the small matrix of products of means.
    values, vectors = np.linalg.eigh(apart @ apart.T)
    is_kept = values > _SMALLEST * values[-1]
    if not is_kept.any():
        return 1 / _SMALLEST  # nothing tells the classes apart
    # Σ_b† = Σ of v vᵀ / value over its eigenvectors v = apartᵀ u / √value.
    directions = (apart.T @ vectors[:, is_kept]) / values[is_kept]  # (width, kept): v / √value
    total = 0.0
    for one, mean in zip(known, means, strict=True):
        within = (features[classes == one] - mean) @ directions
        total += float(np.square(within).sum()) / len(within)
    return total / len(known) / len(known)


def h_score(features: Floats, classes: NDArray[np.int64]) -> float:
    """tr(cov(F)⁻¹ cov(E[F | class])), with cov(F) shrunk after Ledoit and Wolf (Bao 2019). High: classes differ."""
    from sklearn.covariance import ledoit_wolf

    covariance, _ = ledoit_wolf(features)
    known, counts = np.unique(classes, return_counts=True)
    means = np.stack([features[classes == one].mean(0) for one in known]) - features.mean(0)
    between = means * np.sqrt(counts / len(features))[:, None]  # (classes, width)
    return float(np.square(np.linalg.solve(np.linalg.cholesky(covariance), between.T)).sum())


def logme(features: Floats, labels: NDArray[np.float64] | NDArray[np.int64], n_classes: int | None) -> float:
    """The largest log evidence per row of a Bayesian linear model of the labels (You 2021). High: a linear fit works.

    Classes are one model each (this class or not), and the mean over them is returned.
    """
    left, values, _ = np.linalg.svd(features, full_matrices=False)
    targets = [labels.astype(np.float64)] if n_classes is None else [
        (labels == one).astype(np.float64) for one in range(n_classes) if (labels == one).any()
    ]  # fmt: skip
    return float(np.mean([_evidence(left, np.square(values), target, features.shape[1]) for target in targets]))


def _evidence(left: Floats, squares: Floats, target: Floats, width: int) -> float:
    """The largest log p(y | F, α, β) / rows over α and β, by the fixed point of its two equations (MacKay).

    Args:
        left: left singular vectors of the features (rows, rank).
        squares: squared singular values (rank,).
        target: y (rows,).
        width: columns of the features.
    """
    n_rows = len(target)
    along = np.square(left.T @ target)  # (rank,) what each direction explains
    apart = max(float(target @ target - along.sum()), 0.0)  # what none explains
    alpha, beta = 1.0, 1.0
    for _ in range(_MOST_STEPS):
        gamma = float((squares / (squares + alpha / beta)).sum())
        weights = float((along * squares / np.square(squares + alpha / beta)).sum())
        error = float((along * np.square(alpha / beta / (squares + alpha / beta))).sum()) + apart
        new_alpha = gamma / max(weights, _SMALLEST)
        new_beta = max(n_rows - gamma, _SMALLEST) / max(error, _SMALLEST)
        is_close = abs(new_alpha / new_beta - alpha / beta) <= _CLOSE * alpha / beta
        alpha, beta = new_alpha, new_beta
        if is_close:
            break
    return _log_evidence(alpha, beta, squares, along, apart, n_rows=n_rows, width=width) / n_rows


def _log_evidence(
    alpha: float, beta: float, squares: Floats, along: Floats, apart: float, *, n_rows: int, width: int
) -> float:
    """The log evidence, log p(y | F, α, β), from the singular values of F."""
    ratio = alpha / beta
    weights = float((along * squares / np.square(squares + ratio)).sum())
    error = float((along * np.square(ratio / (squares + ratio))).sum()) + apart
    log_determinant = float(np.log(alpha + beta * squares).sum()) + (width - len(squares)) * np.log(alpha)
    return 0.5 * float(
        n_rows * np.log(beta)
        + width * np.log(alpha)
        - n_rows * np.log(2 * np.pi)
        - beta * error
        - alpha * weights
        - log_determinant
    )


def grouped(labels: NDArray[np.float64], n_groups: int) -> NDArray[np.int64]:
    """Values in groups of about equal size, from the smallest to the largest, for scores that need classes."""
    edges = np.quantile(labels, np.linspace(0, 1, n_groups + 1)[1:-1])
    return np.searchsorted(edges, labels, side="right").astype(np.int64)
