"""Programs that no package index carries: where their source is, how it is built, and where the result lies.

Sources: ggml-org/llama.cpp docs/build.md (GGML_CUDA, GGML_HIP, GGML_SYCL, GGML_VULKAN); ikawrakow/ik_llama.cpp
docs/build.md @8337e4cd.
"""

from __future__ import annotations

from typing import Final

from tonnage.messages import say
from tonnage.nouns import noun

__all__ = ["Build", "build_of"]

_FLAGS: Final = {"nvidia": "-DGGML_CUDA=ON", "amd": "-DGGML_HIP=ON", "intel": "-DGGML_SYCL=ON"}


@noun
class Build:
    """A program made of its source, always of the same state of it."""

    folder: str
    repository: str
    ref: str  # a tag or a commit

    @property
    def programs(self) -> str:
        """Folder of what was built."""
        return f"{self.folder}/build/bin"

    @property
    def source_lines(self) -> tuple[str, ...]:
        """Lines of a shell script that fetch the source; run again they change nothing."""
        return (
            f"if [ ! -e {self.folder}/CMakeLists.txt ]; then",
            f"  git init -q {self.folder} && git -C {self.folder} fetch -q --depth 1 {self.repository} {self.ref}",
            f"  git -C {self.folder} checkout -q FETCH_HEAD",
            "fi",
        )

    def lines(self, maker: str) -> tuple[str, ...]:
        """Return lines that fetch and build it for a maker's devices; run again they change nothing."""
        flag = _FLAGS.get(maker, "")
        configure = f"cmake -S {self.folder} -B {self.folder}/build -DCMAKE_BUILD_TYPE=Release {flag}".rstrip()
        return (
            *self.source_lines,
            f"if [ ! -x {self.programs}/llama-server ]; then",
            *(f"  {line}" for line in _tool_lines(maker)),
            f"  {configure}",
            f'  cmake --build {self.folder}/build -j "$(nproc)" --target llama-server llama-quantize',
            "fi",
        )


def _tool_lines(maker: str) -> tuple[str, ...]:
    """Return lines that find the compiler where NVIDIA's packages put it, and end with a word where a tool is missing."""
    tools = "cmake nvcc" if maker == "nvidia" else "cmake"
    missing = say("places.not_there", what="$one", script="prepare.sh")
    return (
        *(
            ('command -v nvcc >/dev/null || export PATH="${CUDA_HOME:-/usr/local/cuda}/bin:$PATH"',)
            if maker == "nvidia"
            else ()
        ),
        f'for one in {tools}; do command -v "$one" >/dev/null || {{ echo "${{0##*/}}: {missing}" >&2; exit 4; }}; done',
    )


_BUILDS: Final = {
    "llama.cpp": Build(folder="llama.cpp", repository="https://github.com/ggml-org/llama.cpp", ref="b11549"),
    "ik_llama.cpp": Build(
        folder="ik_llama.cpp",
        repository="https://github.com/ikawrakow/ik_llama.cpp",
        ref="8337e4cd3861406fc04e0854b1409cd1b027fbc9",
    ),
}


def build_of(name: str) -> Build:
    """Return how a program is built.

    >>> build_of("ik_llama.cpp").programs
    'ik_llama.cpp/build/bin'
    """
    return _BUILDS[name]


def is_built(engine: str) -> bool:
    """Return whether an engine is built from source where no image carries it."""
    return engine in _BUILDS
