"""banana100-bench: is your no-reference image quality metric blind to iterative degradation?"""

__version__ = "0.1.0"
