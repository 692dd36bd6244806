"""The Gaussian process: a mean that physics gives with its own uncertainty, a smooth rest, and noise per start."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

from autotune.search.gp.kernel import matern, matern_by_log_length, squares

Array = NDArray[np.float64]
JITTER = 1e-8


class Data(msgspec.Struct, frozen=True):
    """Readings: configurations with all their starts pooled, and single loads of one start.

    ``points`` (n, dims) unit coordinates, ``values`` (n,) mean log score, ``shared`` (n, n) how much of the variance
    between starts two readings have in common (1/k on the diagonal for the mean of k starts), ``within`` (n,) variance
    of each reading's own error. ``apart`` (n, n) is how far another study's readings may lie from what they
    would be here, a covariance (None: there are none).
    """

    points: Array
    values: Array
    shared: Array
    within: Array
    apart: Array | None = None


class Mean(msgspec.Struct, frozen=True):
    """The prior mean (n,) at some points and its sensitivities (n, p), scaled to one prior deviation each."""

    values: Array
    slopes: Array


class Prior(msgspec.Struct, frozen=True, kw_only=True):
    """Medians and log deviations of the hyperparameters. ``amplitude`` is what the mean does not explain, relative;
    ``lengths`` are the medians axis by axis, where they are not all ``length``.
    """

    amplitude: float = 0.08
    amplitude_sd: float = 0.6
    length: float = 0.7
    lengths: tuple[float, ...] = ()
    length_sd: float = 0.6
    noise: float = 0.05
    noise_sd: float = 0.5


class Process(msgspec.Struct, frozen=True):
    """A fitted process. ``noise`` is the deviation between starts, ``evidence`` the log posterior of its parameters."""

    data: Data
    mean: Mean
    categorical: tuple[bool, ...]
    amplitude: float
    lengths: Array
    noise: float
    factor: Array
    weights: Array
    evidence: float = 0.0

    def predict(self, points: Array, mean: Mean) -> tuple[Array, Array, Array]:
        """Posterior mean (m,) and deviation (m,) of the noise-free value, and the reduced cross factor (n, m)."""
        cross = self._covariance(self.data.points, self.mean, points, mean)
        reduced = solve_triangular(self.factor, cross, lower=True, check_finite=False)
        centre = mean.values + cross.T @ self.weights
        own = self.amplitude**2 + (mean.slopes**2).sum(axis=1)
        return centre, np.sqrt(np.maximum(own - (reduced**2).sum(axis=0), 1e-12)), reduced

    def reading(self, points: Array, mean: Mean, mix: Array, within: float) -> tuple[Array, Array]:
        """One more load each on starts that were read: the reduced cross factor (n, m), and the variance (m,) of what
        will be read. ``mix`` (k, m) is how much of the start's deviation each of the first k readings has.
        """
        cross = self._covariance(self.data.points, self.mean, points, mean)
        cross[: len(mix)] += self.noise**2 * mix
        reduced = solve_triangular(self.factor, cross, lower=True, check_finite=False)
        own = self.amplitude**2 + (mean.slopes**2).sum(axis=1) + self.noise**2 + within
        return reduced, np.maximum(own - (reduced**2).sum(axis=0), 1e-12)

    def joint(self, left: tuple[Array, Mean, Array], right: tuple[Array, Mean, Array]) -> Array:
        """Posterior covariance (m, k) between two sets of points, each with its mean and reduced cross factor."""
        prior = self._covariance(left[0], left[1], right[0], right[1])
        return np.asarray(prior - left[2].T @ right[2])

    def _covariance(self, left: Array, left_mean: Mean, right: Array, right_mean: Mean) -> Array:
        smooth = matern(squares(left, right, self.categorical), self.lengths)
        return np.asarray(self.amplitude**2 * smooth + left_mean.slopes @ right_mean.slopes.T)


def fit(data: Data, mean: Mean, categorical: tuple[bool, ...], prior: Prior) -> Process:
    """The process at the most probable hyperparameters."""
    centre = np.log([prior.amplitude, prior.noise, *(prior.lengths or [prior.length] * len(categorical))])
    spread = np.array([prior.amplitude_sd, prior.noise_sd, *[prior.length_sd] * len(categorical)])
    loss = _Loss(data, mean, categorical, centre, spread)
    found = centre
    if len(data.values) > 1:
        bounds = list(zip(centre - 3 * spread, centre + 3 * spread, strict=True))
        answer = minimize(loss, centre, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 30})
        found = answer.x
    amplitude, noise, lengths = math.exp(found[0]), math.exp(found[1]), np.exp(found[2:])
    factor, weights = loss.solve(found)
    return Process(data, mean, categorical, amplitude, lengths, noise, factor, weights, -loss(found)[0])


class _Loss:
    """Negative log posterior of (log amplitude, log noise, log lengths), with its gradient."""

    def __init__(self, data: Data, mean: Mean, categorical: tuple[bool, ...], centre: Array, spread: Array) -> None:
        self._data = data
        self._rest = data.values - mean.values
        self._base = mean.slopes @ mean.slopes.T
        self._distances = squares(data.points, data.points, categorical)
        self._centre, self._spread = centre, spread

    def __call__(self, theta: Array) -> tuple[float, Array]:
        amplitude2, noise2 = math.exp(2 * theta[0]), math.exp(2 * theta[1])
        smooth, by_length = matern_by_log_length(self._distances, np.exp(theta[2:]))
        factor, weights = self._solved(amplitude2 * smooth, noise2)
        inverse = cho_solve((factor, True), np.eye(len(weights)), check_finite=False)
        inner = np.outer(weights, weights) - inverse
        gradient = np.empty_like(theta)
        gradient[0] = -(inner * smooth).sum() * amplitude2
        gradient[1] = -(inner * self._data.shared).sum() * noise2
        gradient[2:] = -0.5 * amplitude2 * np.einsum("nm,dnm->d", inner, by_length)
        off = (theta - self._centre) / self._spread
        value = 0.5 * self._rest @ weights + np.log(np.diag(factor)).sum() + 0.5 * (off @ off)
        return float(value), gradient + off / self._spread

    def solve(self, theta: Array) -> tuple[Array, Array]:
        smooth = matern(self._distances, np.exp(theta[2:]))
        return self._solved(math.exp(2 * theta[0]) * smooth, math.exp(2 * theta[1]))

    def _solved(self, smooth: Array, noise2: float) -> tuple[Array, Array]:
        full = smooth + self._base + noise2 * self._data.shared
        if self._data.apart is not None:
            full += self._data.apart
        full[np.diag_indices_from(full)] += self._data.within + JITTER
        factor = cholesky(full, lower=True, check_finite=False)
        return factor, cho_solve((factor, True), self._rest, check_finite=False)
