"""The public contract: names, where they are, what they take, what fits and paths offer."""

from __future__ import annotations

import inspect
import pkgutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import scalefair

NAMES = {
    "": """FairRidge FairKernelRidge FairKernelRidgeCV FairKernelClassifier FairKernelRegressor
    FairKernelClassifierCV FairKernelRegressorCV
        FairGPRegressor FairGPClassifier FairPath LossPath Moments audit save load scan_parquet
        scan_csv BatchSource make_fair limit_gap to_onnx CrossFit config_context set_config
        get_config explain_share proxies Decisions PartyMaps group_probabilities""",
    "maps": "RandomFourier Nystroem Identity OneHot ConcatMap ProductMap LeafMap TransformerMap",
    "kernels": "RBF Laplace Matern Linear Categorical",
    "measures": """hsic nocco explained_share mutual_information group_gaps hsic_test
        normalized_hsic distance_correlation conditional_hsic_test make_dependence_scorer""",
    "losses": "Loss Squared Huber Quantile Poisson Gamma Logistic Multinomial",
    "datasets": "load_adult load_communities_crime make_toy1 make_toy2 make_biased_income",
    "plots": """FairPathDisplay FrontDisplay GroupDistributionDisplay AuditDisplay
        RelevanceDisplay LimitGapDisplay ContributionDisplay ProxyDisplay""",
    "report": "make_report",
}

COMMON = {
    "sensitive_kernel": "auto",
    "sensitive_length_scale": "median",
    "n_sensitive_components": 100,
    "unfairness": None,
    "penalty": "normalized",
    "eps": None,
    "sensitive_columns": None,
    "hide_sensitive": False,
    "n_jobs": None,
    "random_state": None,
}
MAPPED = COMMON | {"feature_map": "nystroem", "kernel": "rbf", "length_scale": "median", "n_components": 500}
WEIGHTED = {"alpha": "auto", "eta": None}
RIDGE = {"base_estimator": None, "fit_intercept": True}

PARAMETERS = {
    "FairRidge": COMMON | WEIGHTED | RIDGE | {"output_kernel": None},
    "FairKernelRidge": MAPPED | WEIGHTED | RIDGE | {"output_kernel": None},
    "FairKernelRidgeCV": MAPPED | RIDGE | {"alphas": None, "etas": None, "cv": 5},
    "FairKernelClassifier": MAPPED | WEIGHTED | RIDGE | {"loss": "logistic"},
    "FairKernelRegressor": MAPPED | WEIGHTED | RIDGE | {"loss": "huber"},
    "FairKernelClassifierCV": MAPPED | RIDGE | {"alphas": None, "etas": None, "cv": 5},
    "FairKernelRegressorCV": MAPPED | RIDGE | {"alphas": None, "etas": None, "cv": 5},
    "FairGPRegressor": MAPPED | {"noise": "optimize", "optimizer": "l-bfgs-b", "eta": None},
    "FairGPClassifier": MAPPED | {"optimizer": "l-bfgs-b", "eta": None},
}

ABSENT = {"FairGPRegressor": {"alpha", "fit_intercept"}, "FairKernelRidgeCV": {"alpha", "eta"}}
ABSENT |= {f"FairKernel{kind}CV": {"alpha", "eta"} for kind in ("Classifier", "Regressor")}
MOST = dict.fromkeys(PARAMETERS, 26) | {"FairKernelRidge": 20}
"""Parameters at most; how a fit runs is a setting."""

METHODS = {
    "FairRidge": "fit predict score partial_fit collect solve_from path",
    "FairKernelRidge": "fit predict score partial_fit collect solve_from path",
    "FairKernelRidgeCV": "fit predict score collect solve_from path",
    "FairKernelClassifier": "fit predict predict_proba predict_log_proba decision_function path",
    "FairKernelRegressor": "fit predict score path",
    "FairKernelClassifierCV": "fit predict predict_proba predict_log_proba decision_function path",
    "FairKernelRegressorCV": "fit predict score path",
    "FairGPRegressor": "fit predict score sample_y log_marginal_likelihood",
    "FairGPClassifier": "fit predict predict_proba decision_function log_marginal_likelihood",
}

FITTED = ["eta_", "n_features_in_", "feature_names_in_", "n_samples_seen_", "explained_share_"]
SOLVED = [*FITTED, "coef_", "intercept_", "moments_"]
HELD_OUT = [*SOLVED, "alpha_", "path_", "cv_results_", "explained_share_cv_", "explained_share_cv_error_"]
ATTRIBUTES = {
    "FairRidge": SOLVED,
    "FairKernelRidge": SOLVED,
    "FairKernelRidgeCV": HELD_OUT,
    "FairKernelClassifierCV": [*HELD_OUT, "classes_"],
    "FairKernelRegressorCV": HELD_OUT,
    "FairKernelClassifier": [*SOLVED, "classes_"],
    "FairKernelRegressor": SOLVED,
    "FairGPRegressor": [*FITTED, "kernel_", "noise_"],
    "FairGPClassifier": [*FITTED, "kernel_", "classes_"],
}

ARGUMENTS = {
    "Moments.accumulate": "source phi psi",
    "Moments.save": "self path",
    "Moments.load": "path",
    "FairPath.at": "self *unfairness *alpha *eta",
    "LossPath.at": "self *unfairness *alpha *eta",
    "FairPath.front": "self",
    "LossPath.front": "self",
    "FairPath.plot": "self ax",
    "LossPath.plot": "self ax",
    "FairKernelRidge.path": "self alphas etas",
    "measures.hsic": "a b kernel_a kernel_b *biased",
    "measures.nocco": "a b kernel_a kernel_b *eps",
    "measures.explained_share": "f s",
    "measures.mutual_information": "a b",
    "measures.hsic_test": "a b",
    "datasets.make_biased_income": "n_rows *chunks *random_state",
    "explain_share": "model X *sensitive_features",
    "proxies": "X *sensitive_features",
    "save": "model path",
    "load": "path",
    "scan_parquet": "path",
    "scan_csv": "path",
}


def attribute(path):
    thing = scalefair
    for name in path.split("."):
        thing = getattr(thing, name)
    return thing


@pytest.mark.parametrize("module", NAMES)
def test_every_name_is_where_it_is_promised(module):
    for name in NAMES[module].split():
        path = f"{module}.{name}".lstrip(".")
        assert callable(attribute(path))
        assert name in attribute(module).__all__ if module else scalefair.__all__
        assert inspect.getdoc(attribute(path))


@pytest.mark.processes
def test_modules_are_there_without_an_import_of_their_own():
    code = "import scalefair; print(scalefair.measures.hsic, scalefair.kernels.RBF(2.0))"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    modules = {module.name for module in pkgutil.iter_modules(scalefair.__path__)}
    assert modules.intersection(dir(scalefair)) == {*NAMES} - {""}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        scalefair.nothing  # noqa: B018


@pytest.mark.parametrize("name", PARAMETERS)
def test_constructors_take_keywords_with_these_defaults(name):
    parameters = inspect.signature(attribute(name)).parameters
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters.values())
    defaults = {key: p.default for key, p in parameters.items()}
    assert PARAMETERS[name].items() <= defaults.items()
    assert not (ABSENT.get(name, set()) | {*scalefair.get_config()}) & {*defaults}
    assert len(defaults) <= MOST[name]


@pytest.mark.parametrize("name", METHODS)
def test_methods_and_the_keywords_of_fit(name):
    estimator = attribute(name)
    for method in METHODS[name].split():
        assert callable(getattr(estimator, method))
    fit = inspect.signature(estimator.fit).parameters
    assert list(fit)[:3] == ["self", "X", "y"]
    for keyword in ("sensitive_features", "sample_weight"):
        assert fit[keyword].kind is fit[keyword].KEYWORD_ONLY
        assert fit[keyword].default is None
    assert {p.kind for p in list(fit.values())[3:]} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("path", ARGUMENTS)
def test_arguments(path):
    """A star marks a keyword; more keywords with defaults may follow."""
    parameters = inspect.signature(attribute(path)).parameters
    expected = ARGUMENTS[path].split()
    for name in expected:
        keyword = name.startswith("*")
        kind = parameters[name.lstrip("*")].kind
        assert (kind is inspect.Parameter.KEYWORD_ONLY) == keyword
    positional = [n for n, p in parameters.items() if p.kind is not p.KEYWORD_ONLY]
    assert positional[: len(expected)] == [name for name in expected if name[0] != "*"]
    more = [p for n, p in parameters.items() if n not in ARGUMENTS[path].replace("*", "").split()]
    assert all(p.default is not p.empty for p in more)


def test_audits_take_their_attributes_by_name():
    for function in (scalefair.audit, scalefair.measures.group_gaps):
        parameters = inspect.signature(function).parameters
        assert {"y_pred", "sensitive_features", "y_true"} <= {*parameters}
        assert parameters["y_true"].default is None


def rows(n=120):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "c"])
    s = rng.choice(["f", "m"], n)
    return X, X["a"] + (s == "m") + 0.1 * rng.normal(size=n), s


@pytest.fixture(scope="module")
def fits():
    X, y, s = rows()
    small = {"random_state": 0}
    return {
        name: attribute(name)(**small | ({} if name == "FairRidge" else {"n_components": 10})).fit(
            X, y > 0 if "Classifier" in name else y, sensitive_features=s
        )
        for name in PARAMETERS
    }


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_fitted_attributes(fits, name):
    for key in ATTRIBUTES[name]:
        value = getattr(fits[name], key)
        assert value is not None
        assert not type(value).__module__.startswith(("pandas", "dask"))


@pytest.mark.parametrize("name", [name for name, methods in METHODS.items() if "path" in methods])
def test_every_path_has_the_same_face(fits, name):
    X, y, s = rows()
    model = fits[name]
    moments = "Ridge" in name
    path = model.path() if moments else model.path(X, y > 0 if "Classifier" in name else y, sensitive_features=s)
    for each in [path, *([model.path_] if name.endswith("CV") else [])]:
        front = each.front()
        assert {*front} == {*each.table}
        assert front.columns[0].startswith("explained_share")
        assert front.columns[1].split("_")[0] in ("mse", "loss")
        assert front[front.columns[0]].is_monotonic_increasing
        limited = each.at(unfairness=0.5)
        assert limited.predict(X).shape == y.shape
    assert path.at(unfairness=0.5).explained_share_ <= 0.5 + 1e-9
    eta = float(path.etas[1])
    assert path.at(eta=eta).eta_ == eta
    closed = ["alpha", "eta", "mse", "r2", "explained_share", "hsic"]
    assert list(path.table) == (closed if moments else ["eta", "loss", "explained_share", "passes"])


def test_the_cross_validated_path_has_held_out_columns(fits):
    table = fits["FairKernelRidgeCV"].path_.table
    held_out = {"mse_cv", "mse_cv_error", "explained_share_cv", "explained_share_cv_error"}
    assert held_out < {*table}


def test_logarithms_of_probabilities(fits):
    X, *_ = rows()
    model = fits["FairKernelClassifier"]
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
