# A short front for CMake: `make demo` and `make test` do everything on a fresh Debian machine. See README.md.

PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
CMAKE_ARGS := $(if $(CI),-DANTHESIS_WERROR=ON)
CTEST := ctest --parallel $(JOBS) --output-on-failure
SOURCES = $(shell git ls-files '*.h' '*.cpp')

.PHONY: build demo test test-arm python-env python wheel sanitize asan tsan fuzz bench format format-check install clean

# configure-NAME makes the build folder of a preset, all-NAME builds everything in it.
configure-%:
	@tools/install-deps
	@cmake --preset $* -Wno-dev --log-level=WARNING $(CMAKE_ARGS)
all-%: configure-%
	@cmake --build --preset $* --parallel $(JOBS)

build: configure-release
	@cmake --build --preset release --parallel $(JOBS) --target anthesis_program

demo: build
	@build/anthesis demo

# The Python package is tested where pip can bring what its tests need into .venv; where not, that is said. TORCH=1: also
# with torch; without it the tests that need it skip.
test: python-env
	@$(MAKE) --no-print-directory all-release
	@$(CTEST) --test-dir build

# The kernel tests for ARM of 64 bits, under qemu.
test-arm:
	@tools/install-deps build arm
	@cmake -B build-arm -G Ninja -Wno-dev --log-level=WARNING -DCMAKE_BUILD_TYPE=Release -DCMAKE_TOOLCHAIN_FILE=cmake/arm.cmake -DANTHESIS_ONLY_KERNELS=ON $(CMAKE_ARGS)
	@cmake --build build-arm --parallel $(JOBS)
	@$(CTEST) --test-dir build-arm

python-env:
	@tools/install-deps
	@tools/python-env $(if $(TORCH),torch)

# The package, into .venv. TORCH=1 adds torch and transformers, for comparisons and anthesis.nnterp.
python:
	@tools/install-deps
	@tools/python-env --must $(if $(TORCH),torch)
	@echo 'Building the Python package (a few minutes the first time)'
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall .
	@.venv/bin/python -c 'import anthesis; print("anthesis", anthesis.__version__, "is in .venv: .venv/bin/python")'

# One file that runs wherever this Python does: what it links to lies inside.
wheel:
	@tools/install-deps
	@tools/python-env --must wheel
	@rm -rf build-python/plain
	@.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir build-python/plain .
	@PATH=$(CURDIR)/.venv/bin:$$PATH .venv/bin/python -m auditwheel repair --wheel-dir build-python/dist build-python/plain/*.whl
	@ls build-python/dist/*.whl

sanitize: asan tsan
asan tsan: %: all-%
	@$(CTEST) --test-dir build-$*

fuzz:
	@tools/install-deps build develop
	@tools/fuzz

bench: configure-release
	@cmake --build --preset release --parallel $(JOBS) --target benchmarks
	@for program in build/benchmark_*; do echo; echo "== $$program"; $$program || exit 1; done

format format-check:
	@tools/install-deps develop
	@clang-format-14 $(if $(filter format,$@),-i,--dry-run --Werror) $(SOURCES)

install: all-release
	@cmake --install build --prefix $(PREFIX)

clean:
	rm -rf build build-debug build-asan build-tsan build-arm build-python
