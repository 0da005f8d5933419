#!/bin/sh
# The steps that make the content of an image. images/Dockerfile runs them, and e2e/tests/test_images.py runs the same
# ones into empty directories, so that what is tested is what is built.
#
#   install.sh builder DIR                       what builds wheels, as requirements/build.lock has it
#   install.sh wheels BUILDER OUT CONTROLLER     the wheels of tightship and of CONTROLLER
#   install.sh locked DIR CONTROLLER             an environment with what requirements/CONTROLLER.lock has and its
#                                                byte-code, without pip
#   install.sh controller DIR WHEELS CONTROLLER  the wheels into that environment, and their byte-code
#
# Directories are absolute paths. PYTHON is the interpreter, which needs pip; default python3. The same sources, lock,
# interpreter and path of DIR give the same bytes: wheels take their times from SOURCE_DATE_EPOCH, and byte-code goes by
# the content of its source, not by its time.
set -eu
umask 022
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_QUIET=1 PIP_ROOT_USER_ACTION=ignore
export PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0

# Wheels only: nothing is ever compiled, so no image needs a compiler, and nothing that is downloaded runs here.
locked() {
    "$python" -m venv --without-pip "$1"
    "$python" -m pip --python "$1/bin/python" install --no-compile --require-hashes --no-deps \
        --only-binary :all: --requirement "$2"
}

# Byte-code of all below a directory, $2, by the interpreter $1.
compiled() {
    "$1" -m compileall -q -j 0 --invalidation-mode unchecked-hash \
        -x 'site-packages/(kubernetes/.*/models/(?!__init__)|.*/tests/)' "$2"
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
    # The API models of the Kubernetes client, thousands of modules, are loaded one by one where one is used, which is
    # hardly ever: their byte-code would be a quarter of the image.
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
