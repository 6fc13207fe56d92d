/* tests/unit/cuda/cuda_open_test.c - how the cuda back end starts on various drivers: which image
 * of the kernels runs, what works without kernels, and what each error of a start means. */
#include "cuda/cuda_internal.h"
#include "tests/support/fake_cuda.h"

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STAGING_BYTES (256 * SL_KIB)

static struct sl_driver engine; /* another use of the same driver */
static struct fake_cuda *fake;

static void setup(void)
{
    fake_cuda_state_fn state;
    ck_assert_int_eq(sl_driver_open(&engine, FAKE_CUDA, NULL), SL_OK);
    void *symbol = dlsym(engine.library, "fake_cuda_state");
    memcpy(&state, &symbol, sizeof(state));
    fake = state();
}

static void teardown(void)
{
    ck_assert_int_eq(fake->contexts + fake->modules + fake->streams + fake->events, 0);
    ck_assert_int_eq(fake->allocations + fake->host_allocations + fake->registrations, 0);
    sl_driver_close(&engine);
}

static sl_err open_as(const char *name, const void *kernels, struct sl_device **out,
                      struct sl_error *why)
{
    struct sl_device_options options = {
        .name = name, .staging_bytes = STAGING_BYTES, .driver_path = FAKE_CUDA, .kernels = kernels};
    return sl_device_open(&options, out, why);
}

static struct sl_device *device_open(const void *kernels)
{
    struct sl_device *device = NULL;
    struct sl_error why = {0};
    ck_assert_msg(open_as("cuda", kernels, &device, &why) == SL_OK, "%s", why.text);
    return device;
}

/* ---- images ---- */

#define NAMES      SL_KERNEL_GATHER " " SL_KERNEL_SCATTER " " SL_KERNEL_HASH " " SL_KERNEL_HASH_RUNS
#define CODE_BYTES 256u

/* Makes machine code as far as a driver checks it: an ELF header, and the kernels' names. */
static void code_make(unsigned char *out, unsigned abi, uint32_t capability)
{
    uint64_t sections = CODE_BYTES;
    memset(out, 0, CODE_BYTES);
    memcpy(out,
           "\x7f"
           "ELF\x02\x01\x01",
           7);
    out[7] = abi >= 8 ? 0x41 : 0x33;
    out[8] = (unsigned char)abi;
    out[18] = 190;
    memcpy(out + 40, &sections, sizeof(sections));
    capability <<= abi >= 8 ? 8 : 0;
    memcpy(out + 48, &capability, sizeof(capability));
    memcpy(out + 64, NAMES, sizeof(NAMES));
}

/* A fat binary of toolkit 13: code of sm_90 and sm_100, and PTX 9.0. */
static void fatbin_make(unsigned char *out, size_t room)
{
    static const char ptx[CODE_BYTES] = ".version 9.0\n.target sm_80\n" NAMES;
    static const uint32_t capabilities[] = {90, 100};
    uint64_t all = 3 * (64 + CODE_BYTES), payload = CODE_BYTES;
    memset(out, 0, room);
    memcpy(out, "\x50\xed\x55\xba\x01\x00\x10\x00", 8);
    memcpy(out + 8, &all, sizeof(all));
    for (uint32_t i = 0; i < 3; i++) {
        unsigned char *entry = out + 16 + i * (64 + CODE_BYTES);
        entry[0] = i < 2 ? 2 : 1;
        entry[4] = 64;
        memcpy(entry + 8, &payload, sizeof(payload));
        if (i < 2) {
            code_make(entry + 64, 8, capabilities[i]);
        } else {
            memcpy(entry + 64, ptx, sizeof(ptx));
        }
    }
}

static unsigned char image_bytes[5][2048];
static const struct sl_kernel_image images[] = {
    {"nvcc 13.0", image_bytes[0], 0},         {"ptxas 12.0 sm_90", image_bytes[1], 90},
    {"ptxas 12.0 sm_86", image_bytes[2], 86}, {"ptxas 12.0 sm_80", image_bytes[3], 80},
    {"PTX 7.0", image_bytes[4], 0},
};

static void images_make(void)
{
    static const char ptx[] = "// by clang\n.version 7.0\n.target sm_80\n" NAMES;
    fatbin_make(image_bytes[0], sizeof(image_bytes[0]));
    for (size_t i = 1; i < 4; i++) {
        code_make(image_bytes[i], 7, images[i].capability);
    }
    memcpy(image_bytes[4], ptx, sizeof(ptx));
}

static const struct {
    int number, capability;
    const char *want;
} drivers[] = {
    {13000, 90, "nvcc 13.0"},
    {13000, 103, "nvcc 13.0"},
    {13000, 120, "nvcc 13.0"}, /* compiles its PTX 9.0 */
    {12080, 90, "ptxas 12.0 sm_90"},
    {12000, 90, "ptxas 12.0 sm_90"},
    {12000, 89, "ptxas 12.0 sm_86"},
    {12040, 80, "ptxas 12.0 sm_80"},
    {12080, 100, "PTX 7.0"},
    {11000, 80, "ptxas 12.0 sm_80"},
    {12000, 75, "refused by the driver: nvcc 13.0: code 222, PTX 7.0: code 209"},
};

START_TEST(newest_image_that_the_driver_takes_runs)
    {
        struct sl_error why = {0};
        images_make();
        struct sl_device *device = device_open(FAKE_CUDA_IMAGE);
        struct cuda_device *cuda = cuda_of(device);
        ck_assert_int_eq(cuda->driver.module_unload(cuda->kernels.module), 0);
        cuda->kernels.module = NULL;
        fake->number = drivers[_i].number;
        fake->capability = drivers[_i].capability;
        cuda->capability = (uint32_t)drivers[_i].capability;

        ck_assert_int_eq(sl_kernels_load(&cuda->driver, cuda->capability, images, SL_COUNT(images),
                                         &cuda->kernels, &why),
                         SL_OK);

        ck_assert_str_eq(cuda->kernels.text, drivers[_i].want);
        ck_assert_int_eq(cuda->kernels.module == NULL,
                         strncmp(drivers[_i].want, "refused", 7) == 0);
        sl_device_close(&device);
    }
END_TEST

START_TEST(image_without_a_kernel_is_given_up_for_the_next)
    {
        struct sl_error why = {0};
        images_make();
        struct sl_device *device = device_open(FAKE_CUDA_IMAGE);
        struct cuda_device *cuda = cuda_of(device);
        ck_assert_int_eq(cuda->driver.module_unload(cuda->kernels.module), 0);
        cuda->kernels.module = NULL;
        fake->number = 12000;
        memset(image_bytes[1] + 64, 0, sizeof(NAMES));

        ck_assert_int_eq(sl_kernels_load(&cuda->driver, cuda->capability, images, SL_COUNT(images),
                                         &cuda->kernels, &why),
                         SL_OK);

        ck_assert_str_eq(cuda->kernels.text, "PTX 7.0");
        ck_assert_int_eq(fake->modules, 1);
        sl_device_close(&device);
    }
END_TEST

/* A driver that loads lazily (the default from 12.2 on) checks a kernel at its first use. */
START_TEST(image_that_is_refused_late_is_unloaded)
    {
        fake->fail_symbol = "fake_module_function";
        fake->fail_code = SL_CU_INVALID_IMAGE;
        struct sl_device *device = device_open(FAKE_CUDA_IMAGE);
        ck_assert(device->reduced);
        ck_assert_ptr_nonnull(strstr(device->text, "refused by the driver: given: code 200"));
        ck_assert_int_eq(fake->modules, 0);
        ck_assert_ptr_null(cuda_of(device)->kernels.gather);
        fake->fail_symbol = NULL;
        sl_device_close(&device);
    }
END_TEST

START_TEST(failure_that_is_not_the_images_ends_the_start)
    {
        struct sl_device *device = NULL;
        struct sl_error why = {0};
        fake->fail_symbol = "fake_module_load";
        fake->fail_code = SL_CU_OUT_OF_MEMORY;

        ck_assert_int_eq(open_as("cuda", FAKE_CUDA_IMAGE, &device, &why), SL_ERR_NO_MEMORY);

        ck_assert_ptr_nonnull(strstr(why.text, "load the kernels (given)"));
        fake->fail_symbol = NULL;
    }
END_TEST

/* ---- without kernels ---- */

#define LAYERS 3u
#define BLOCKS 8u

static const struct {
    uint64_t piece_bytes, stride_bytes;
    bool cross_layer;
} pools[] = {
    {4096, 4096, false},     /* digests where it lies not possible */
    {16384, 16400, false},   /* whole chunks */
    {4096, 3 * 4096, true},  /* blocks in one run */
    {100000, 100000, false}, /* a value over the staging */
    {200000, 200000, false}, /* a piece over the staging */
};

/* Copies there and back through a device whose kernels no driver of this number loads. */
static void moves_without_kernels(size_t shape, bool pinned)
{
    static const char late[] = ".version 9.9\n.target sm_80\n" NAMES;
    uint64_t piece = pools[shape].piece_bytes, stride = pools[shape].stride_bytes;
    size_t pool_bytes = stride * BLOCKS * (pools[shape].cross_layer ? 1 : LAYERS);
    size_t arena_bytes = 8 * SL_MIB;
    struct sl_layer layers[LAYERS];
    struct sl_move moves[BLOCKS] = {{0}};
    struct sl_error why = {0};
    uint32_t layers_index = 0;
    sl_cu_ptr pool = 0;
    bool more = true;
    struct sl_device *device = device_open(late);
    ck_assert(device->reduced);
    ck_assert_int_eq(engine.memory_get(&pool, pool_bytes), 0);
    unsigned char *bytes = (unsigned char *)(uintptr_t)pool, *copy = malloc(pool_bytes);
    unsigned char *arena = aligned_alloc(4096, arena_bytes);
    for (size_t i = 0; i < pool_bytes; i++) {
        copy[i] = bytes[i] = (unsigned char)(i * 131 + i / 4099);
    }
    for (uint32_t l = 0; l < LAYERS; l++) {
        uint64_t at = l * (pools[shape].cross_layer ? piece : stride * BLOCKS);
        layers[l] = (struct sl_layer){.base = bytes + at,
                                      .block_stride_bytes = stride,
                                      .piece_bytes = piece,
                                      .block_count = BLOCKS};
    }
    ck_assert_int_eq(device->ops->layers_add(device, layers, LAYERS, &layers_index, &why), SL_OK);
    ck_assert_int_eq(sl_device_host_add(device, arena, arena_bytes, pinned ? arena_bytes : 0, &why),
                     SL_OK);
    while (more) {
        ck_assert_int_eq(sl_device_work(device, &more, &why), SL_OK);
    }
    for (uint32_t i = 0; i < BLOCKS; i++) {
        moves[i] = (struct sl_move){.host = arena + i * LAYERS * piece + i * 64,
                                    .device_block = i * 5 % BLOCKS,
                                    .layers_index = layers_index};
    }

    ck_assert_msg(device->ops->move(device, moves, BLOCKS, true, true, &why) == SL_OK, "%s",
                  why.text);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            const unsigned char *from = layers[l].base + moves[i].device_block * stride;
            ck_assert_int_eq(memcmp(moves[i].host + l * piece, from, piece), 0);
        }
        ck_assert(sl_digest_equal(moves[i].digest, sl_digest_of(moves[i].host, LAYERS * piece)));
        moves[i].first_layer = 1; /* layer by layer now */
        moves[i].layer_end = 2;
    }
    ck_assert_msg(device->ops->move(device, moves, BLOCKS, true, true, &why) == SL_OK, "%s",
                  why.text);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        ck_assert(sl_digest_equal(moves[i].digest, sl_digest_of(moves[i].host + piece, piece)));
        moves[i].first_layer = moves[i].layer_end = 0;
    }
    memset(bytes, 0, pool_bytes);
    ck_assert_int_eq(device->ops->move(device, moves, BLOCKS, false, false, &why), SL_OK);
    for (uint32_t i = 0; i < BLOCKS * LAYERS; i++) {
        size_t at = (size_t)(layers[i / BLOCKS].base - bytes) + i % BLOCKS * stride;
        ck_assert_int_eq(memcmp(bytes + at, copy + at, piece), 0);
    }

    ck_assert_uint_eq(fake->launches, 0);
    ck_assert_uint_gt(device->stats.copies + device->stats.batches, 0);
    ck_assert(pinned == (device->stats.bounced_bytes == 0));
    sl_device_host_remove(device, arena);
    device->ops->layers_remove(device, layers_index);
    sl_device_close(&device);
    ck_assert_int_eq(engine.memory_free(pool), 0);
    free(arena);
    free(copy);
}

START_TEST(without_kernels_copies_go_on)
    {
        moves_without_kernels((size_t)_i / 2, _i % 2 == 0);
    }
END_TEST

START_TEST(missing_kernels_are_told)
    {
        static const char late[] = ".version 9.9\n.target sm_80\n" NAMES;
        struct sl_device *device = device_open(late);
        ck_assert_ptr_nonnull(strstr(device->text, "GPU 0 Fake (sm_90, 4 multiprocessors, 4 for "
                                                   "copies), driver 13.0"));
        ck_assert_ptr_nonnull(strstr(device->text, "; only copies, no kernels: refused by the "
                                                   "driver: given: code 222"));
        ck_assert_ptr_nonnull(strstr(cuda_of(device)->crossover.machine, "-copies"));
        sl_device_close(&device);
    }
END_TEST

static const struct {
    int number;
    bool newer, older;
} batch_calls[] = {{13000, true, true}, {12080, false, true}, {12000, false, false}};

START_TEST(batch_calls_are_those_of_the_driver)
    {
        struct sl_driver driver;
        fake->number = batch_calls[_i].number;
        ck_assert_int_eq(sl_driver_open(&driver, FAKE_CUDA, NULL), SL_OK);
        ck_assert_int_eq(driver.number, batch_calls[_i].number);
        ck_assert_int_eq(driver.copy_batch != NULL, batch_calls[_i].newer);
        ck_assert_int_eq(driver.copy_batch_12 != NULL, batch_calls[_i].older);
        sl_driver_close(&driver);
        struct sl_device *device = device_open(FAKE_CUDA_IMAGE);
        ck_assert_int_eq(cuda_of(device)->batch_works, batch_calls[_i].older);
        sl_device_close(&device);
    }
END_TEST

static const bool no_host_pointers[] = {false, true};

/* Pieces on either side of registered memory, where the figures prefer a batch. */
START_TEST(batches_are_only_where_the_device_has_host_pointers)
    {
        struct sl_error why = {0};
        struct sl_layer layers[LAYERS];
        struct sl_move moves[BLOCKS];
        sl_cu_ptr pool = 0;
        uint32_t layers_index = 0;
        bool more = true;
        unsigned char *arena = aligned_alloc(4096, 2 * SL_MIB);
        fake->no_host_pointers = no_host_pointers[_i];
        struct sl_device *device = device_open(FAKE_CUDA_IMAGE);
        uint32_t *speed = &cuda_of(device)->crossover.speed[0][0][0][0][0];
        ck_assert_int_eq(engine.memory_get(&pool, LAYERS * BLOCKS * 16384), 0);
        cuda_of(device)->crossover.measured = true;
        for (uint32_t i = 0; i < SL_CROSSOVER_FIELDS; i++) {
            speed[i] = i % SL_WAY_COUNT == SL_WAY_BATCH ? 2 : 1;
        }
        for (uint64_t l = 0; l < LAYERS; l++) {
            layers[l] =
                (struct sl_layer){.base = (unsigned char *)(uintptr_t)(pool + l * BLOCKS * 16384),
                                  .block_stride_bytes = 16384,
                                  .piece_bytes = 16384,
                                  .block_count = BLOCKS};
        }
        ck_assert_int_eq(device->ops->layers_add(device, layers, LAYERS, &layers_index, &why),
                         SL_OK);
        ck_assert_int_eq(sl_device_host_add(device, arena, 2 * SL_MIB, 2 * SL_MIB, &why), SL_OK);
        while (more) {
            ck_assert_int_eq(sl_device_work(device, &more, &why), SL_OK);
        }
        for (uint32_t i = 0; i < BLOCKS; i++) {
            moves[i] = (struct sl_move){.host = arena + (size_t)i * LAYERS * 16384,
                                        .device_block = i * 5 % BLOCKS,
                                        .layers_index = layers_index};
        }

        for (int to_host = 0; to_host < 2; to_host++) {
            ck_assert_msg(device->ops->move(device, moves, BLOCKS, to_host != 0, false, &why) ==
                              SL_OK,
                          "%s", why.text);
        }

        ck_assert_int_eq(fake->batches > 0, !no_host_pointers[_i]);
        ck_assert_uint_eq(device->stats.batches_refused, 0);
        sl_device_host_remove(device, arena);
        device->ops->layers_remove(device, layers_index);
        sl_device_close(&device);
        ck_assert_int_eq(engine.memory_free(pool), 0);
        free(arena);
    }
END_TEST

/* The images of this build, if any, on the fake driver with today's number. */
START_TEST(build_without_kernels_has_a_device_all_the_same)
    {
        uint32_t count = 0;
        bool built = sl_cuda_kernels(&count) != NULL;
        struct sl_device *device = device_open(NULL);
        ck_assert_int_eq(built, count > 0);
        ck_assert_int_eq(device->reduced, !built);
        ck_assert_ptr_nonnull(strstr(
            device->text, built ? ", kernels by " : "; only copies, no kernels: built without"));
        sl_device_close(&device);
    }
END_TEST

/* Layers in one run or not, small or larger than the staging, digested or not. */
START_TEST(some_way_is_always_possible)
    {
        static const char late[] = ".version 9.9\n.target sm_80\n" NAMES;
        struct sl_device *device = device_open((_i & 1) != 0 ? late : FAKE_CUDA_IMAGE);
        struct cuda_device *cuda = cuda_of(device);
        for (uint32_t shape = 0; shape < 16; shape++) {
            struct cuda_table table = {
                .hash_in_place = (shape & 1) != 0,
                .host = {.path = (shape & 2) != 0 ? SL_PLAN_RUNS : SL_PLAN_PIECES,
                         .value_bytes = 4096}};
            struct cuda_job job = {
                .table = &table,
                .digests = (shape & 4) != 0,
                .to_host = true,
                .range = {.length_bytes = (shape & 8) != 0 ? STAGING_BYTES : 4096}};
            bool possible[SL_WAY_COUNT] = {false}, any = false;
            cuda->batch_works = (_i & 2) != 0;
            cuda_ways(cuda, &job, possible);
            for (uint32_t way = 0; way < SL_WAY_COUNT; way++) {
                any |= possible[way];
            }
            ck_assert_msg(any, "shape %u", shape);
            ck_assert(cuda->kernels.module != NULL ||
                      (!possible[SL_WAY_STAGED] && !possible[SL_WAY_MAPPED]));
        }
        sl_device_close(&device);
    }
END_TEST

/* ---- errors of a start ---- */

static const struct {
    const char *call;
    int code;
    sl_err cuda, automatic; /* SL_OK: the host instead */
    const char *text;
} starts[] = {
    {"fake_init", SL_CU_NO_DEVICE, SL_ERR_UNSUPPORTED, SL_OK, "cuInit"},
    {"fake_init", 999, SL_ERR_UNSUPPORTED, SL_OK, "cuInit"},
    {"fake_init", SL_CU_SYSTEM_NOT_READY, SL_ERR_UNREACHABLE, SL_ERR_UNREACHABLE, "fabricmanager"},
    {"fake_device_count", SL_CU_SYSTEM_NOT_READY, SL_ERR_UNREACHABLE, SL_ERR_UNREACHABLE,
     "fabricmanager"},
    {"fake_context_retain", SL_CU_SYSTEM_NOT_READY, SL_ERR_UNREACHABLE, SL_ERR_UNREACHABLE,
     "fabricmanager"},
    {"fake_init", SL_CU_MISMATCH, SL_ERR_UNSUPPORTED, SL_OK, "reboot"},
    {"fake_init", SL_CU_NO_COMPATIBLE, SL_ERR_UNSUPPORTED, SL_OK, "cuda-compat"},
    {"fake_init", SL_CU_MPS_CONNECTION, SL_ERR_DEVICE, SL_ERR_DEVICE, "nvidia-cuda-mps-control"},
    {"fake_context_retain", SL_CU_MPS_RPC, SL_ERR_DEVICE, SL_ERR_DEVICE, "MPS server's log"},
    {"fake_context_retain", SL_CU_MPS_SERVER, SL_ERR_DEVICE, SL_ERR_DEVICE, "MPS server recovers"},
    {"fake_context_retain", SL_CU_MPS_CLIENTS, SL_ERR_DEVICE, SL_ERR_DEVICE, "MPS server is full"},
    {"fake_context_retain", SL_CU_MPS_CONNECTIONS, SL_ERR_DEVICE, SL_ERR_DEVICE,
     "MPS server is full"},
    {"fake_context_retain", SL_CU_UNAVAILABLE, SL_ERR_CONFIG, SL_ERR_CONFIG, "nvidia-smi"},
    {"fake_context_retain", SL_CU_OUT_OF_MEMORY, SL_ERR_NO_MEMORY, SL_ERR_NO_MEMORY,
     "primary context of GPU 0"},
};

START_TEST(error_of_a_start_says_what_to_do)
    {
        struct sl_device *device = NULL;
        struct sl_error why = {0};
        fake->fail_symbol = starts[_i].call;
        fake->fail_code = starts[_i].code;

        ck_assert_int_eq(open_as("cuda", FAKE_CUDA_IMAGE, &device, &why), starts[_i].cuda);
        ck_assert_ptr_nonnull(strstr(why.text, starts[_i].text));
        ck_assert_int_eq(why.os_code, starts[_i].code);

        memset(&why, 0, sizeof(why));
        ck_assert_int_eq(open_as("auto", FAKE_CUDA_IMAGE, &device, &why), starts[_i].automatic);
        if (starts[_i].automatic == SL_OK) {
            ck_assert_str_eq(device->ops->name, "host");
            ck_assert_ptr_nonnull(strstr(device->text, starts[_i].text));
            sl_device_close(&device);
        } else {
            ck_assert_ptr_nonnull(strstr(why.text, starts[_i].text));
        }
        fake->fail_symbol = NULL;
    }
END_TEST

static const struct {
    int mode;
    bool taken;
    int mps;
    sl_err want;
    const char *text;
} modes[] = {
    {SL_CU_MODE_PROHIBITED, false, 0, SL_ERR_CONFIG, "GPU 0 is in prohibited"},
    {SL_CU_MODE_EXCLUSIVE, false, 0, SL_ERR_CONFIG, "cannot both have it"},
    {SL_CU_MODE_EXCLUSIVE, true, 0, SL_ERR_CONFIG, "cannot both have it"},
    {SL_CU_MODE_EXCLUSIVE, true, -1, SL_ERR_CONFIG, "another process has it"},
    {SL_CU_MODE_EXCLUSIVE, true, 1, SL_OK, NULL},
    {SL_CU_MODE_EXCLUSIVE, false, -1, SL_OK, NULL},
};

START_TEST(compute_modes_that_keep_the_engine_out_are_refused)
    {
        struct sl_device *device = NULL;
        struct sl_error why = {0};
        fake->compute_mode = modes[_i].mode;
        fake->taken = modes[_i].taken;
        fake->mps = modes[_i].mps;

        ck_assert_msg(open_as("auto", FAKE_CUDA_IMAGE, &device, &why) == modes[_i].want, "%s",
                      why.text);

        if (modes[_i].want == SL_OK) {
            ck_assert_str_eq(device->ops->name, "cuda");
        } else {
            ck_assert_ptr_nonnull(strstr(why.text, modes[_i].text));
            ck_assert_uint_lt(strlen(why.text), SL_ERROR_TEXT_BYTES - 1);
        }
        sl_device_close(&device);
    }
END_TEST

/* A broken connection to MPS stays broken in this process: another process has to connect. */
START_TEST(mps_errors_are_the_end_of_the_process)
    {
        struct sl_error why = {0};
        struct sl_device_memory memory = {.fd = -1};
        struct sl_device *device = device_open(FAKE_CUDA_IMAGE);
        fake->fail_symbol = "fake_granularity";
        fake->fail_code = SL_CU_MPS_CONNECTION + _i;

        sl_err err = sl_device_memory_create(device, 4096, &memory, &why);

        ck_assert_int_eq(err, SL_ERR_DEVICE);
        ck_assert_int_eq(sl_err_class(err), SL_CLASS_RESTART);
        ck_assert(cuda_of(device)->driver.lost);
        fake->fail_symbol = NULL;
        cuda_of(device)->driver.lost = false; /* so that it is closed in order here */
        sl_device_close(&device);
    }
END_TEST

/* ---- which GPU ---- */

START_TEST(memory_of_another_gpu_is_refused_by_name)
    {
        struct sl_error why = {0};
        struct sl_mapping mapping;
        struct sl_memory_handle handle = {.kind = SL_MEMORY_CUDA_IPC, .pid = (uint32_t)getpid()};
        struct sl_cu_ipc ipc;
        sl_cu_ptr pool = 0;
        fake->gpus = 3;
        struct sl_device *device = device_open(FAKE_CUDA_IMAGE);
        ck_assert_int_eq(device->gpu[0], 0xfa);
        ck_assert_int_eq(engine.memory_get(&pool, 4096), 0);
        ck_assert_int_eq(engine.ipc_get(&ipc, pool), 0);
        memcpy(handle.ipc, ipc.bytes, sizeof(handle.ipc));
        fake->pointer_gpu = _i;

        sl_err err = device->ops->map(device, &handle, 4096, &mapping, &why);

        ck_assert_msg(err == (_i == 0 ? SL_OK : SL_ERR_CONFIG), "%s", why.text);
        if (_i == 0) {
            device->ops->unmap(device, &mapping);
        } else {
            ck_assert_ptr_nonnull(
                strstr(why.text, _i == 1 ? "GPU 1 (GPU-fbfbfbfb-fbfb-fbfb-fbfb-fbfbfbfbfbfb)"
                                         : "GPU 2 (GPU-fcfcfcfc-fcfc-fcfc-fcfc-fcfcfcfcfcfc)"));
            ck_assert_ptr_nonnull(
                strstr(why.text, "this device is GPU-fafafafa-fafa-fafa-fafa-fafafafafafa"));
        }
        ck_assert_int_eq(fake->ipc_opens, 0);
        sl_device_close(&device);
        ck_assert_int_eq(engine.memory_free(pool), 0);
    }
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda, from its start on");
    TCase *cases = tcase_create("kernels");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, newest_image_that_the_driver_takes_runs, 0, SL_COUNT(drivers));
    tcase_add_test(cases, image_without_a_kernel_is_given_up_for_the_next);
    tcase_add_test(cases, image_that_is_refused_late_is_unloaded);
    tcase_add_test(cases, failure_that_is_not_the_images_ends_the_start);
    tcase_add_loop_test(cases, without_kernels_copies_go_on, 0, 2 * SL_COUNT(pools));
    tcase_add_test(cases, missing_kernels_are_told);
    tcase_add_test(cases, build_without_kernels_has_a_device_all_the_same);
    tcase_add_loop_test(cases, some_way_is_always_possible, 0, 4);
    tcase_add_loop_test(cases, batch_calls_are_those_of_the_driver, 0, SL_COUNT(batch_calls));
    tcase_add_loop_test(cases, batches_are_only_where_the_device_has_host_pointers, 0,
                        SL_COUNT(no_host_pointers));
    tcase_add_loop_test(cases, error_of_a_start_says_what_to_do, 0, SL_COUNT(starts));
    tcase_add_loop_test(cases, compute_modes_that_keep_the_engine_out_are_refused, 0,
                        SL_COUNT(modes));
    tcase_add_loop_test(cases, mps_errors_are_the_end_of_the_process, 0, 3);
    tcase_add_loop_test(cases, memory_of_another_gpu_is_refused_by_name, 0, 3);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failures = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failures == 0 ? 0 : 1;
}
