# The kernels' images, newest first. Each is built where its tool is found, and the build says which are missing:
#   nvcc      machine code for every architecture; its ELF ABI 8 and PTX 9.0 need driver 580 (CUDA 13.0)
#   ptxas     of CUDA 11.8 or 12.0 (deploy/install --kernels): machine code that drivers from 525 on take
#   clang     PTX 7.0, which every driver since 450 compiles itself, for any architecture from sm_80 on
# Sets SL_KERNEL_ROWS, the C rows of all images, and SL_KERNEL_FILES.
set(SL_PTXAS_RELEASE 12.0.140)
set(SL_PTXAS_FOLDER $ENV{HOME}/.cache/sluice/ptxas-${SL_PTXAS_RELEASE})
find_program(SL_CLANG NAMES clang-14 clang)
find_program(SL_PTXAS NAMES ptxas HINTS ${SL_PTXAS_FOLDER} NO_DEFAULT_PATH
    DOC "ptxas of CUDA 11.8 or 12.0; deploy/install --kernels brings it")
set(SL_KERNEL_ROWS "")
set(SL_KERNEL_FILES "")
set(sources ${CMAKE_CURRENT_SOURCE_DIR}/kernels.cu ${CMAKE_CURRENT_SOURCE_DIR}/sl_digest_body.h
    ${CMAKE_CURRENT_SOURCE_DIR}/sl_digest_runs_body.h
    ${CMAKE_CURRENT_SOURCE_DIR}/sl_kernel_body.h ${CMAKE_CURRENT_SOURCE_DIR}/sl_kernels.h)

# A row: symbol, capability of machine code (90 is sm_90; 0: the driver chooses), name for people, file.
macro(sl_kernel_image symbol capability name file)
    string(APPEND SL_KERNEL_ROWS "    X(${symbol}, ${capability}, \"${name}\", \"${file}\") \\\n")
    list(APPEND SL_KERNEL_FILES ${file})
endmacro()

if(SL_NVCC)
    execute_process(COMMAND ${SL_NVCC} --version OUTPUT_VARIABLE said)
    string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" said "${said}")
    set(release ${CMAKE_MATCH_1})
    set(code "")
    foreach(architecture 80 86 89 90 100 120)
        list(APPEND code -gencode=arch=compute_${architecture},code=sm_${architecture})
    endforeach()
    list(APPEND code -gencode=arch=compute_80,code=compute_80) # for later architectures, compiled by the driver
    set(image ${CMAKE_CURRENT_BINARY_DIR}/kernels.fatbin)
    add_custom_command(OUTPUT ${image}
        COMMAND ${SL_NVCC} -fatbin --no-compress ${code} -std=c++17 -O3 -Werror all-warnings -I ${CMAKE_SOURCE_DIR}
            -o ${image} ${CMAKE_CURRENT_SOURCE_DIR}/kernels.cu
        DEPENDS ${sources} COMMENT "nvcc kernels.fatbin" VERBATIM)
    sl_kernel_image(nvcc 0 "nvcc ${release}" ${image})
else()
    message(STATUS "kernels: no nvcc, so no image of the newest compiler (CUDA_HOME names a toolkit)")
endif()

if(SL_CLANG)
    set(ptx ${CMAKE_CURRENT_BINARY_DIR}/kernels.ptx)
    # A missing folder: otherwise clang would look for a toolkit and use its PTX version.
    add_custom_command(OUTPUT ${ptx}
        COMMAND ${SL_CLANG} -x cuda --cuda-device-only --cuda-gpu-arch=sm_80 --cuda-path=/nonexistent -nocudainc -nocudalib
            -Xclang -target-feature -Xclang +ptx70 -std=c++17 -O3 -Wall -Wextra -Werror -I ${CMAKE_SOURCE_DIR}
            -include ${CMAKE_CURRENT_SOURCE_DIR}/sl_clang_kernel.h -S -o ${ptx} ${CMAKE_CURRENT_SOURCE_DIR}/kernels.cu
        DEPENDS ${sources} ${CMAKE_CURRENT_SOURCE_DIR}/sl_clang_kernel.h COMMENT "clang kernels.ptx" VERBATIM)
    set(release "")
    if(SL_PTXAS)
        execute_process(COMMAND ${SL_PTXAS} --version OUTPUT_VARIABLE said)
        string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" said "${said}")
        set(release ${CMAKE_MATCH_1})
    endif()
    if(release VERSION_GREATER_EQUAL 11.8 AND release VERSION_LESS_EQUAL 12.0)
        foreach(architecture 90 89 86 80)
            set(image ${CMAKE_CURRENT_BINARY_DIR}/kernels.sm_${architecture}.cubin)
            add_custom_command(OUTPUT ${image} COMMAND ${SL_PTXAS} -O3 -arch=sm_${architecture} -o ${image} ${ptx}
                DEPENDS ${ptx} COMMENT "ptxas kernels.sm_${architecture}.cubin" VERBATIM)
            sl_kernel_image(sm_${architecture} ${architecture} "ptxas ${release} sm_${architecture}" ${image})
        endforeach()
    else()
        message(STATUS "kernels: no ptxas of CUDA 11.8 or 12.0 (deploy/install --kernels brings one; SL_PTXAS names one): "
            "drivers below 580 compile PTX themselves")
    endif()
    sl_kernel_image(ptx 0 "PTX 7.0" ${ptx})
else()
    message(STATUS "kernels: no clang, so no image for drivers below 580: there copies go on without kernels")
endif()
if(SL_KERNEL_FILES STREQUAL "")
    message(FATAL_ERROR "SL_CUDA: neither nvcc nor clang was found; set CUDA_HOME, or build with SL_CUDA=OFF")
endif()
