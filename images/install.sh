#!/bin/sh
# The steps that create the content of an image. images/Dockerfile runs these steps, and e2e/tests/test_images.py runs the same
# steps into empty directories, so that the tests cover what the images contain.
#
#   install.sh builder DIR                       the tools that build wheels, from requirements/build.lock
#   install.sh wheels BUILDER OUT CONTROLLER     the wheels of tightship and of CONTROLLER
#   install.sh locked DIR CONTROLLER             an environment with the packages of requirements/CONTROLLER.lock and
#                                                their byte-code, without pip
#   install.sh controller DIR WHEELS CONTROLLER  installs the wheels into that environment, with byte-code
#
# Directories are absolute paths. PYTHON is the interpreter, which needs pip; default python3. The same sources, lock,
# interpreter and path of DIR give the same bytes: wheels take their timestamps from SOURCE_DATE_EPOCH, and byte-code depends
# on the content of its source, not on a timestamp.
set -eu
umask 022
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_QUIET=1 PIP_ROOT_USER_ACTION=ignore
export PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0

# Installs only wheels, so no image needs a compiler, and pip runs no downloaded code.
locked() {
    "$python" -m venv --without-pip "$1"
    "$python" -m pip --python "$1/bin/python" install --no-compile --require-hashes --no-deps \
        --only-binary :all: --requirement "$2"
}

# Compiles every module below the directory $2 with the interpreter $1.
compiled() {
    "$1" -m compileall -q -j 0 --invalidation-mode unchecked-hash -x 'site-packages/.*/tests/' "$2"
}

case "$1" in
builder)
    locked "$2" requirements/build.lock
    ;;
wheels)
    for package in common "$4"; do
        (cd "packages/$package" && "$2/bin/hatchling" build --target wheel --directory "$3")
    done
    ;;
locked)
    locked "$2" "requirements/$3.lock"
    compiled "$2/bin/python" "$2/lib"
    ;;
controller)
    "$python" -m pip --python "$2/bin/python" install --no-compile --no-deps \
        --no-index --find-links "$3" tightship "$4"
    "$python" -m pip --python "$2/bin/python" check
    for package in tightship "$(echo "$4" | tr - _)"; do
        compiled "$2/bin/python" "$2"/lib/python3.*/site-packages/"$package"
    done
    ;;
*)
    echo "$0: '$1' is no step; there are builder, wheels, locked and controller" >&2
    exit 64
    ;;
esac
