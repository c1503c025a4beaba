"""`evaluate.load("loading_script/banana100_ordering.py")`: the criteria of banana100-bench as an evaluate metric."""

from banana100_bench.evaluate_metric import Banana100Ordering

__all__ = ["Banana100Ordering"]
