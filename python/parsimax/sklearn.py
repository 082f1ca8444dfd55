"""Linear classifiers with sparse posteriors, as scikit-learn estimators over the native solver.

`SparsemaxClassifier` predicts one class per row, `SparsemaxMultiLabelClassifier` any number of labels.
Both minimise ``l2/2 · ‖W‖² + mean loss`` by L-BFGS, with the sparsemax loss or another Fenchel–Young loss;
the intercept is free of the penalty. `predict_proba` holds exact zeros.
"""

from __future__ import annotations

import warnings

import numpy as np

import parsimax as _parsimax

from . import _native

try:
    from scipy import sparse as _sparse
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError("parsimax.sklearn needs scikit-learn 1.6 or newer: pip install 'parsimax[sklearn]'") from error

__all__ = ["SparsemaxClassifier", "SparsemaxMultiLabelClassifier"]

_LOSSES = ("sparsemax", "entmax15", "entmax", "softmax")


def _native_rows(X):
    """The matrix in the form that the native fit takes."""
    if not _sparse.issparse(X):
        return np.ascontiguousarray(X, dtype=np.float64)
    X = _sparse.csr_matrix(X, copy=False)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X.indptr.astype(np.int64), X.indices.astype(np.int64), np.asarray(X.data, np.float64), X.shape[1]


class _Linear(ClassifierMixin, BaseEstimator):
    """What both classifiers share: the fit, the scores, the probabilities."""

    def __init__(self, *, l2=1e-2, loss="sparsemax", alpha=None, fit_intercept=True, max_iter=1000, tol=1e-11):
        self.l2 = l2
        self.loss = loss
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _parameters(self):
        if self.loss not in _LOSSES:
            raise ValueError(f"loss must be one of {', '.join(_LOSSES)}, got {self.loss!r}")
        if self.alpha is None:
            return {}
        if self.loss != "entmax":
            raise ValueError(f"alpha does not apply to the loss {self.loss!r}, only to 'entmax'")
        return {"alpha": float(self.alpha)}

    def _solve(self, X, y, sample_weight):
        """Fits to a class or to shares of the labels per row."""
        weights, bias, self.n_iter_, self.objective_, converged = _native.fit_linear(
            _native_rows(X),
            y,
            len(self.classes_),
            self.loss,
            self._parameters(),
            float(self.l2),
            int(self.max_iter),
            float(self.tol),
            None if sample_weight is None else np.ascontiguousarray(sample_weight, dtype=np.float64),
            bool(self.fit_intercept),
        )
        self.coef_ = np.ascontiguousarray(weights.T)
        self.intercept_ = bias
        if not converged:
            warnings.warn(
                f"L-BFGS stopped after max_iter={self.max_iter} iterations; increase it or scale the features",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _scores(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return np.asarray(X @ self.coef_.T) + self.intercept_

    def _map(self, scores):
        return getattr(_parsimax, self.loss)(np.ascontiguousarray(scores), **self._parameters())

    def _fit_classes(self, X, y, sample_weight):
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"{type(self).__name__} needs at least two classes, got one class: {self.classes_[0]!r}")
        self._solve(X, codes.astype(np.int64), sample_weight)

    def _decide_classes(self, scores):
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores


class SparsemaxClassifier(_Linear):
    """A multinomial linear classifier whose posteriors can be exactly zero.

    Parameters
    ----------
    l2 : float, default=1e-2
        The weight of ``½‖W‖²`` beside the mean loss.
    loss : {"sparsemax", "entmax15", "entmax", "softmax"}, default="sparsemax"
        The mapping whose Fenchel–Young loss is minimised.
    alpha : float, optional
        The shape of "entmax".
    fit_intercept : bool, default=True
        Whether each class has an intercept.
    max_iter : int, default=1000
        The largest number of L-BFGS iterations.
    tol : float, default=1e-11
        The fit ends when no entry of the gradient is larger.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (n_classes, n_features)
    intercept_ : ndarray of shape (n_classes,)
    n_iter_ : int
    objective_ : float
    """

    def fit(self, X, y, sample_weight=None):
        """Fits the model to rows and their classes."""
        self._parameters()
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        self._fit_classes(X, y, sample_weight)
        return self

    def decision_function(self, X):
        """Scores per class; for two classes the second's lead over the first."""
        return self._decide_classes(self._scores(X))

    def predict_proba(self, X):
        """Probabilities per class, many of them exactly zero."""
        return self._map(self._scores(X))

    def predict(self, X):
        """The class with the largest score."""
        scores = self._scores(X)
        return self.classes_[np.argmax(scores, axis=1)]


class SparsemaxMultiLabelClassifier(_Linear):
    """A linear classifier for any number of labels per row, after Martins & Astudillo (2016).

    A row's target is the uniform distribution over its labels; rows without a label take no part in the
    fit. Predicted are the labels in the support of the mapping at ``temperature`` times the scores, or,
    if a ``threshold`` is given, those whose share is larger. Trained with a single column of classes, it
    predicts the class with the largest score.

    Parameters
    ----------
    l2, loss, alpha, fit_intercept, max_iter, tol
        As for `SparsemaxClassifier`.
    temperature : float, default=1.0
        Factor of the scores before the mapping; larger predicts fewer labels.
    threshold : float, optional
        The share that a label must exceed; needed for "softmax", which has no zeros.

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,)
    coef_ : ndarray of shape (n_labels, n_features)
    intercept_ : ndarray of shape (n_labels,)
    n_iter_ : int
    objective_ : float
    """

    def __init__(
        self,
        *,
        l2=1e-2,
        loss="sparsemax",
        alpha=None,
        fit_intercept=True,
        max_iter=1000,
        tol=1e-11,
        temperature=1.0,
        threshold=None,
    ):
        super().__init__(l2=l2, loss=loss, alpha=alpha, fit_intercept=fit_intercept, max_iter=max_iter, tol=tol)
        self.temperature = temperature
        self.threshold = threshold

    # The tag "multi_label" stays off: with it scikit-learn asks that no entry of predict_proba be 0,
    # and zeros are what this classifier is for. Its other multi-label checks hold and are tested.

    def fit(self, X, y, sample_weight=None):
        """Fits the model to rows and an indicator matrix of their labels."""
        self._parameters()
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, multi_output=True)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        self.multilabel_ = type_of_target(y, input_name="y") == "multilabel-indicator"
        if not self.multilabel_:
            if y.ndim == 2 and y.shape[1] > 1:
                raise ValueError("y must be an indicator matrix of labels (0 and 1) or one column of classes")
            if y.ndim == 2:
                from sklearn.exceptions import DataConversionWarning

                warnings.warn(
                    "A column-vector y was passed when a 1d array was expected", DataConversionWarning, stacklevel=2
                )
                y = y.ravel()
            self._fit_classes(X, y, sample_weight)
            return self
        y = y.toarray() if _sparse.issparse(y) else np.asarray(y)
        self.classes_ = np.arange(y.shape[1])
        counts = y.sum(axis=1)
        rows = np.flatnonzero(counts)
        if len(rows) == 0:
            raise ValueError("no row has a label")
        shares = np.ascontiguousarray(y[rows] / counts[rows, None], dtype=np.float64)
        self._solve(X[rows], shares, None if sample_weight is None else sample_weight[rows])
        return self

    def decision_function(self, X):
        """Scores per label."""
        scores = self._scores(X)
        return scores if self.multilabel_ else self._decide_classes(scores)

    def predict_proba(self, X):
        """Shares of the labels, which sum to 1, many of them exactly zero."""
        return self._map(self._scores(X))

    def predict(self, X):
        """An indicator matrix of the labels that are on."""
        scores = self._scores(X)
        if not self.multilabel_:
            return self.classes_[np.argmax(scores, axis=1)]
        if self.threshold is not None:
            return (self._map(scores) > self.threshold).astype(int)
        return (self._map(self.temperature * scores) > 0).astype(int)
