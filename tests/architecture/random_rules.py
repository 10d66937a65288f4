"""Where randomness may come from."""

import ast

from tests.architecture.rule import Rule, all_code, package_code
from tests.architecture.source import Source, within

# The parts of numpy.random that hold no hidden state.
KEYED = {
    *("default_rng", "Generator", "SeedSequence", "BitGenerator"),
    *("PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937"),
}
SEEDED = KEYED - {"Generator", "BitGenerator"}
NOISE = {
    *("normal", "standard_normal", "multivariate_normal", "lognormal", "laplace", "gumbel"),
    *("geometric", "logistic", "exponential", "standard_exponential", "standard_t", "rvs"),
}
# Files outside privacy/ that may draw from a distribution, each with the reason.
LAWFUL = {
    "src/siloweave/tables/split.py": "SynthFS makes its rows up: no real row stands behind them",
    "src/siloweave/models/autoencoder.py": "what a Gaussian head or a code is drawn with",
    "src/siloweave/models/latent.py": "what a latent diffusion is trained against",
}
ENTROPY = (
    *("secrets", "os.urandom", "os.getrandom", "random.SystemRandom", "ssl.RAND_bytes"),
    *("uuid.uuid1", "uuid.uuid4"),
)
STOCHASTIC = {
    *("KMeans", "MiniBatchKMeans", "PCA", "TruncatedSVD", "GaussianMixture"),
    *("BayesianGaussianMixture", "RandomForestClassifier", "RandomForestRegressor"),
    *("GradientBoostingClassifier", "GradientBoostingRegressor", "MLPClassifier"),
    *("HistGradientBoostingClassifier", "HistGradientBoostingRegressor", "MLPRegressor"),
    *("train_test_split", "StratifiedKFold", "KFold", "ShuffleSplit", "IsolationForest"),
    *("UMAP", "TSNE", "QuantileTransformer", "mutual_info_classif", "LogisticRegression"),
}


def noise(source: Source) -> list[str]:
    """Noise is drawn where its guarantee is stated and its event is written."""
    if source.layer == "privacy" or source.path in LAWFUL:
        return []
    problems = [
        f"{source.path}:{line}: imports {name}: noise is drawn only in privacy/"
        for line, name in source.imports
        if within(name, "opendp")
    ]
    for node, name in source.calls():
        method = node.func.attr if isinstance(node.func, ast.Attribute) else name.split(".")[-1]
        known = isinstance(node.func, ast.Attribute) or within(name, "numpy.random", "jax.random")
        if method in NOISE and known and not within(name, "siloweave"):
            problems.append(
                f"{source.path}:{node.lineno}: draws with .{method}(): noise is drawn only in "
                "privacy/ (a draw that protects nobody is listed in LAWFUL with its reason)"
            )
    return problems


def global_state(source: Source) -> list[str]:
    """Every draw comes from a key that the caller gave."""
    problems = []
    for line, name in source.references():
        parts = name.split(".")
        hidden = name.startswith("numpy.random.") and parts[2] not in KEYED
        shared = name.startswith("random.") and not within(name, "random.Random")
        if hidden or shared:
            problems.append(
                f"{source.path}:{line}: uses {name}, which draws from a state that the whole "
                "process shares: take a generator from a key"
            )
    for node, name in source.calls():
        first = [*node.args, *(word.value for word in node.keywords)][:1]
        nothing = not first or (isinstance(first[0], ast.Constant) and first[0].value is None)
        random = name.startswith("numpy.random.") and name.split(".")[-1] in SEEDED
        if nothing and (random or name == "random.Random"):
            problems.append(f"{source.path}:{node.lineno}: calls {name} without a seed: give a key")
    return problems


def entropy(source: Source) -> list[str]:
    """What the operating system's entropy is for: noise, masks and keys."""
    if source.layer in {"privacy", "federation"}:
        return []
    return [
        f"{source.path}:{line}: uses {name}: entropy is drawn only in privacy/ and federation/"
        for line, name in source.references()
        if within(name, *ENTROPY)
    ]


def estimators(source: Source) -> list[str]:
    """scikit-learn falls back on numpy's global generator unless it is given a state."""
    return [
        f"{source.path}:{node.lineno}: calls {name} without random_state: derive one from a key"
        for node, name in source.calls()
        if within(name, "sklearn", "umap")
        and name.split(".")[-1] in STOCHASTIC
        and not any(word.arg in {"random_state", None} for word in node.keywords)
    ]


RANDOM_RULES = (
    Rule(
        "noise samplers only in privacy/",
        noise,
        package_code,
        bad=(
            ("src/siloweave/protocols/x.py", "def f(rng):\n    return rng.normal(0, 1, 3)"),
            ("src/siloweave/federation/x.py", "def f():\n    import opendp.prelude as dp"),
            ("src/siloweave/models/x.py", "from scipy.stats import norm\nnorm.rvs(3)"),
            ("src/siloweave/models/x.py", "from jax.random import laplace\nlaplace(key)"),
            ("src/siloweave/evaluate/x.py", "def f(g):\n    return x + g.gumbel(size=3)"),
        ),
        good=(
            ("src/siloweave/privacy/x.py", "def f(rng):\n    return rng.normal(0, 1, 3)"),
            ("src/siloweave/models/x.py", "def f(rng):\n    return rng.random(3)"),
            (
                "src/siloweave/protocols/x.py",
                "from siloweave.privacy import mechanisms\nmechanisms.exponential([1.0])",
            ),
        ),
    ),
    Rule(
        "no generator that the process shares",
        global_state,
        all_code,
        bad=(
            ("tests/x.py", "import numpy as np\nnp.random.seed(0)"),
            ("src/siloweave/x.py", "from numpy.random import rand"),
            ("src/siloweave/x.py", "import numpy as np\nf = np.random.shuffle"),
            ("benchmarks/x.py", "import numpy as np\nnp.random.RandomState(0)"),
            ("tests/x.py", "import numpy as np\nnp.random.default_rng()"),
            ("tests/x.py", "from numpy.random import default_rng as g\ng(seed=None)"),
            ("tests/x.py", "import numpy as np\nnp.random.SeedSequence()"),
            ("tests/x.py", "import random\nrandom.shuffle(x)"),
            ("tests/x.py", "import random\nrandom.Random()"),
            ("tests/x.py", "from random import choice"),
        ),
        good=(
            ("tests/x.py", "import numpy as np\nnp.random.default_rng(0).random(3)"),
            ("src/siloweave/x.py", "import numpy as np\nx: np.random.Generator"),
            ("tests/x.py", "import random\nrandom.Random(4).shuffle(x)"),
            ("src/siloweave/x.py", "import numpy as np\nnp.random.Philox(key=4)"),
        ),
    ),
    Rule(
        "entropy only in privacy/ and federation/",
        entropy,
        package_code,
        bad=(
            ("src/siloweave/protocols/x.py", "import secrets"),
            ("src/siloweave/tables/x.py", "def f():\n    from os import urandom"),
            ("src/siloweave/cli.py", "import os\nos.urandom(8)"),
        ),
        good=(
            ("src/siloweave/privacy/x.py", "import secrets"),
            ("src/siloweave/cli.py", "import os\nos.environ"),
        ),
    ),
    Rule(
        "random estimators get a random_state",
        estimators,
        all_code,
        bad=(
            (
                "src/siloweave/evaluate/x.py",
                "def f():\n    from sklearn.cluster import KMeans\n    KMeans(3)",
            ),
            ("benchmarks/x.py", "import sklearn.cluster as c\nc.KMeans(n_clusters=3)"),
        ),
        good=(("tests/x.py", "from sklearn.cluster import KMeans\nKMeans(3, random_state=0)"),),
    ),
)
