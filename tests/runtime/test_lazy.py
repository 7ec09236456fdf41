import importlib
import subprocess
import sys

import pytest

LAZY = (
    "nogs",
    *(f"nogs.{name}" for name in ["attention", "data", "design", "model", "plus", "posterior", "runtime", "whole"]),
)


@pytest.mark.parametrize("package", LAZY)
def test_lazy_names_are_listed_and_found(package):
    module = importlib.import_module(package)
    assert set(module.__all__) <= set(dir(module))
    assert {"__name__", "__doc__"} <= set(dir(module))
    assert all(hasattr(module, name) for name in module.__all__)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = module.nothing


def test_listing_the_names_imports_none():
    program = "import sys, nogs; assert {'load', 'run'} <= set(dir(nogs)); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
