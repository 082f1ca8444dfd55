"""The estimators: scikit-learn's own checks, the optimum against SciPy, zeros, weights, sparse input."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.6")
from scipy import optimize, sparse
from sklearn.datasets import load_iris, make_multilabel_classification
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

import parsimax
from parsimax.sklearn import SparsemaxClassifier, SparsemaxMultiLabelClassifier


@parametrize_with_checks([SparsemaxClassifier(), SparsemaxMultiLabelClassifier()])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_classifiers_multilabel_representation_invariance,
        estimator_checks.check_classifiers_multilabel_output_format_predict,
        estimator_checks.check_classifiers_multilabel_output_format_decision_function,
    ],
)
def test_scikit_learns_checks_of_many_labels(check):
    check("SparsemaxMultiLabelClassifier", SparsemaxMultiLabelClassifier())


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.mark.parametrize("loss", ["sparsemax", "entmax15", "softmax"])
def test_the_optimum_is_scipys(iris, loss):
    X, y = iris
    d, k, l2 = X.shape[1], 3, 0.05
    model = SparsemaxClassifier(loss=loss, l2=l2, tol=1e-9).fit(X, y)

    def objective(w):
        z = X @ w[: d * k].reshape(d, k) + w[d * k :]
        value, g = getattr(parsimax, loss + "_loss")(z, y, reduction="mean", return_grad=True)
        grad = np.concatenate([(X.T @ g).ravel() + l2 * w[: d * k], g.sum(axis=0)])
        return value + l2 / 2 * (w[: d * k] ** 2).sum(), grad

    found = optimize.minimize(objective, np.zeros((d + 1) * k), jac=True, options={"gtol": 1e-9, "maxiter": 5000})
    # Both stop at gradients of 1e-9, which is 1e-16 in the value.
    assert model.objective_ == pytest.approx(found.fun, abs=1e-12)
    # The strong convexity l2 turns the gradients into distances of 1e-7 at most.
    np.testing.assert_allclose(model.coef_.T.ravel(), found.x[: d * k], atol=1e-6)


def test_posteriors_have_exact_zeros_and_sum_to_one(iris):
    X, y = iris
    p = SparsemaxClassifier().fit(X, y).predict_proba(X)
    assert (p == 0).mean() > 0.3
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-14)
    assert (SparsemaxClassifier(loss="softmax").fit(X, y).predict_proba(X) > 0).all()


def test_sparse_and_dense_rows_agree(iris):
    X, y = iris
    X = np.where(np.abs(X) < 0.5, 0, X)
    dense = SparsemaxClassifier(tol=1e-9).fit(X, y)
    csr = SparsemaxClassifier(tol=1e-9).fit(sparse.csr_matrix(X), y)
    np.testing.assert_allclose(dense.coef_, csr.coef_, atol=1e-6)
    np.testing.assert_array_equal(dense.predict(X), csr.predict(sparse.csr_array(X)))


def test_weights_are_repetitions(iris):
    X, y = iris
    weights = np.random.default_rng(3).integers(0, 4, len(X))
    weighted = SparsemaxClassifier(tol=1e-9).fit(X, y, sample_weight=weights)
    repeated = SparsemaxClassifier(tol=1e-9).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-6)


def test_labels_come_from_the_support_or_a_threshold():
    X, Y = make_multilabel_classification(n_samples=300, n_classes=8, random_state=5)
    X = StandardScaler().fit_transform(X)
    model = SparsemaxMultiLabelClassifier(temperature=2.0).fit(X, Y)
    z = model.decision_function(X)
    np.testing.assert_array_equal(model.predict(X), parsimax.sparsemax(2 * z) > 0)
    hotter = SparsemaxMultiLabelClassifier(temperature=5.0).fit(X, Y).predict(X)
    assert hotter.sum() < model.predict(X).sum()
    # Better than chance: labels agree far more often than the base rate allows.
    assert (model.predict(X) == Y).mean() > 0.75
    soft = SparsemaxMultiLabelClassifier(loss="softmax", threshold=1 / 8).fit(X, Y)
    np.testing.assert_array_equal(soft.predict(X), soft.predict_proba(X) > 1 / 8)


def test_bad_options_are_said():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="loss must be one of"):
        SparsemaxClassifier(loss="hinge").fit(X, y)
    with pytest.raises(ValueError, match="alpha does not apply"):
        SparsemaxClassifier(alpha=1.5).fit(X, y)
    with pytest.raises(ValueError, match="l2 must be"):
        SparsemaxClassifier(l2=-1).fit(X, y)
    with pytest.raises(ValueError, match="no row has a label"):
        SparsemaxMultiLabelClassifier().fit(X, np.zeros((len(X), 3), int))


def test_without_scikit_learn_the_message_says_what_to_install():
    code = "import sys; sys.modules['sklearn'] = None\nimport parsimax\nimport parsimax.sklearn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "pip install 'parsimax[sklearn]'" in done.stderr
