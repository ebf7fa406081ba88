# A short front for CMake: `make demo` and `make test` do everything on a fresh Debian machine. See README.md.

PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
CMAKE_ARGS := $(if $(CI),-DANTHESIS_WERROR=ON)
CTEST := ctest --parallel $(JOBS) --output-on-failure
SOURCES = $(shell git ls-files '*.h' '*.cpp')

.PHONY: build demo test sanitize asan tsan fuzz bench format format-check install clean

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

test: all-release
	@$(CTEST) --test-dir build

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
	rm -rf build build-debug build-asan build-tsan
