import os

import lit.formats

config.name = "mpc"
config.test_format = lit.formats.ShTest(execute_external=True)
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs", "unit", "data"]
config.test_source_root = os.path.dirname(__file__)
build = lit_config.params.get("build", os.path.join(config.test_source_root, "..", "build"))
config.test_exec_root = os.path.join(build, "test")
llvm = "/usr/lib/llvm-22/bin"
config.environment["PATH"] = os.pathsep.join([os.path.join(build, "bin"), llvm, os.environ["PATH"]])
config.environment["HOME"] = os.environ.get("HOME", "/root")
config.substitutions.append(("%python", lit_config.params.get("python", "python3")))
config.substitutions.append(("%build", build))
config.substitutions.append(("%root", os.path.join(config.test_source_root, "..")))
config.substitutions.append(("%models", os.path.join(config.test_source_root, "..", "models")))
