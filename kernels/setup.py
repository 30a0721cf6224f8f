"""The extension is optional: where it cannot be compiled, an empty package is installed and Pellucid runs without."""

from setuptools import Extension, setup

KERNELS = ("attention", "decoder", "pointwise", "product", "sampler", "team")

setup(
    ext_modules=[
        Extension(
            "pellucid_kernels._kernels",
            [f"src/{name}.cpp" for name in (*KERNELS, "module")],
            depends=[f"src/{name}.h" for name in (*KERNELS, "fetch", "vector")],
            extra_compile_args=["-std=c++20", "-O3", "-fno-math-errno", "-ffp-contract=off", "-pthread"],
            extra_link_args=["-pthread"],
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
