# Read by CMake when it enters the ggml project: the compute kernels are what an answer's speed hangs on.
set(CMAKE_C_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
