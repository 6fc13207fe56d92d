/* cuda/cuda_measure.c - measures the ways of moving pieces on this machine, a few milliseconds at a
 * time between moves, and saves the figures. */
#include "cuda/cuda_internal.h"
#include "runtime/base/sl_clock.h"

#include <stdlib.h>

#define PROBE_RUNS  2u /* single jobs: the faster run counts, after an untimed one */
#define PROBE_AHEAD 3u /* jobs that fill the pipeline before the timed ones */
/* Timed jobs that follow each other. Each wait may be late by about 50 us, a sixth of a job. */
#define PROBE_TIMED 16u
/* For a job that takes longer by itself the start-up time does not matter. */
#define PROBE_START_NS SL_NS_PER_MS
#define PROBE_MOVES    (CUDA_PROBE_BYTES / 4096)

struct cuda_probe {
    sl_cu_ptr pool;
    unsigned char *host;
    uint32_t next; /* number of the next figure, in the order of crossover.speed */
    struct sl_crossover found;
    struct sl_move moves[PROBE_MOVES];
};

static sl_err probe_open(struct cuda_device *cuda, struct sl_error *why)
{
    struct cuda_probe *probe = calloc(1, sizeof(*probe));
    void *host = NULL;
    if (probe == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory to measure with");
    }
    cuda->probe = probe;
    probe->found = cuda->crossover;
    /* Twice the size: strides on both sides are twice the pieces, so that nothing merges. */
    sl_err err = sl_fail_cuda(&cuda->driver, why,
                              cuda->driver.memory_get(&probe->pool, 2 * cuda->probe_bytes),
                              "get device memory to measure with");
    if (err == SL_OK) {
        err = sl_fail_cuda(&cuda->driver, why,
                           cuda->driver.host_get(&host, 2 * cuda->probe_bytes,
                                                 SL_CU_HOST_PORTABLE | SL_CU_HOST_DEVICEMAP),
                           "get pinned memory to measure with");
        probe->host = host;
    }
    if (err == SL_OK) {
        err = cuda_host_adopt(cuda, probe->host, 2 * cuda->probe_bytes, why);
    }
    if (err != SL_OK) {
        cuda_measure_close(cuda);
    }
    return err;
}

void cuda_measure_close(struct cuda_device *cuda)
{
    struct cuda_probe *probe = cuda->probe;
    if (probe == NULL) {
        return;
    }
    if (probe->host != NULL) {
        cuda_host_forget(cuda, probe->host);
    }
    if (probe->host != NULL && !cuda->hung) {
        (void)cuda->driver.host_free(probe->host);
    }
    if (probe->pool != 0 && !cuda->hung) {
        (void)cuda->driver.memory_free(probe->pool);
    }
    free(probe);
    cuda->probe = NULL;
}

/* Fills moves with blocks and values in different scattered orders; counts are powers of two. */
static void moves_fill(struct cuda_probe *probe, uint64_t value_bytes, uint32_t count,
                       uint32_t layers_index)
{
    SL_ASSERT(count > 0 && count <= PROBE_MOVES);
    for (uint32_t i = 0; i < count; i++) {
        probe->moves[i] = (struct sl_move){
            .host = probe->host + (i * UINT64_C(11)) % count * 2 * value_bytes,
            .device_block = (i * UINT64_C(5)) % count,
            .layers_index = layers_index,
        };
    }
}

/* Sends the job again. */
static sl_err job_again(struct cuda_device *cuda, struct cuda_job *job, struct sl_error *why)
{
    job->next = 0;
    return cuda_move_by(cuda, job, why);
}

/* Times a single job until it has ended. */
static sl_err single_time(struct cuda_device *cuda, struct cuda_job *job, uint64_t *took_ns,
                          struct sl_error *why)
{
    uint64_t start_ns = sl_clock_monotonic_ns();
    sl_err err = job_again(cuda, job, why);
    if (err == SL_OK) {
        err = cuda_slots_finish(cuda, true, why);
    }
    *took_ns = sl_clock_monotonic_ns() - start_ns;
    return err;
}

/* Times jobs that follow each other. Each is sent to a free slot: one job ends between two
 * sends. */
static sl_err follows_time(struct cuda_device *cuda, struct cuda_job *job, uint64_t *took_ns,
                           struct sl_error *why)
{
    uint64_t start_ns = 0;
    sl_err err = SL_OK;
    for (uint32_t i = 0; err == SL_OK && i < PROBE_AHEAD + PROBE_TIMED; i++) {
        start_ns = i == PROBE_AHEAD ? sl_clock_monotonic_ns() : start_ns;
        err = job_again(cuda, job, why);
    }
    *took_ns = (sl_clock_monotonic_ns() - start_ns) / PROBE_TIMED;
    return err == SL_OK ? cuda_slots_finish(cuda, true, why) : err;
}

static sl_err job_time(struct cuda_device *cuda, struct cuda_job *job, bool follows,
                       uint64_t *job_ns, struct sl_error *why)
{
    sl_err err = SL_OK;
    *job_ns = UINT64_MAX;
    if (follows) {
        err = follows_time(cuda, job, job_ns, why);
    }
    for (uint32_t run = 0; !follows && err == SL_OK && run <= PROBE_RUNS; run++) {
        uint64_t took_ns = 0;
        err = single_time(cuda, job, &took_ns, why);
        *job_ns = run > 0 ? SL_MIN(*job_ns, took_ns) : *job_ns;
    }
    if (err != SL_OK) {
        cuda_slots_drop(cuda, &err, why);
    }
    return err;
}

static sl_err figure(struct cuda_device *cuda, struct cuda_job *job, uint32_t alone,
                     uint32_t *speed, struct sl_error *why)
{
    bool possible[SL_WAY_COUNT];
    uint64_t job_ns = 0, bytes = job->count * job->table->host.value_bytes;
    cuda_ways(cuda, job, possible);
    if (!possible[job->way]) {
        return SL_OK;
    }
    if (alone != 0 && bytes * 1000 / alone > PROBE_START_NS) {
        *speed = alone;
        return SL_OK;
    }
    sl_err err = job_time(cuda, job, alone != 0, &job_ns, why);
    if (err == SL_OK) { /* bytes per microsecond equal megabytes per second */
        uint64_t rate = bytes * 1000 / SL_MAX(job_ns, UINT64_C(1));
        *speed = (uint32_t)SL_MAX(SL_MIN(rate, (uint64_t)UINT32_MAX), UINT64_C(1));
    }
    return err;
}

/* Measures values of one piece each: an entry of any way covers one piece, and no entries merge. */
static sl_err figure_next(struct cuda_device *cuda, struct cuda_probe *probe, struct sl_error *why)
{
    uint32_t way = probe->next % SL_WAY_COUNT, rest = probe->next / SL_WAY_COUNT;
    uint32_t count = rest % SL_CROSSOVER_COUNTS;
    uint32_t size = rest / SL_CROSSOVER_COUNTS % SL_CROSSOVER_SIZES;
    uint32_t to_host = rest / SL_CROSSOVER_COUNTS / SL_CROSSOVER_SIZES % 2;
    uint32_t follows = rest / SL_CROSSOVER_COUNTS / SL_CROSSOVER_SIZES / 2;
    uint64_t piece_bytes = sl_crossover_piece_bytes(size);
    uint64_t pieces = SL_MIN(sl_crossover_pieces(count), cuda->probe_bytes / piece_bytes);
    struct sl_layer layer = {.base = (unsigned char *)(uintptr_t)probe->pool,
                             .block_stride_bytes = 2 * piece_bytes,
                             .piece_bytes = piece_bytes,
                             .block_count = pieces};
    uint32_t layers_index = 0;
    sl_err err = cuda_layers_add(&cuda->base, &layer, 1, &layers_index, why);
    if (err != SL_OK) {
        return err;
    }
    moves_fill(probe, piece_bytes, (uint32_t)pieces, layers_index);
    struct cuda_job job = {
        .table = &cuda->tables[layers_index],
        .moves = probe->moves,
        .count = (uint32_t)pieces,
        .range = {.layer_end = 1, .length_bytes = piece_bytes},
        .way = (enum sl_way)way,
        .to_host = to_host != 0,
    };
    /* A single job's figure is measured first. */
    uint32_t alone = follows ? probe->found.speed[0][to_host][size][count][way] : 0;
    err = figure(cuda, &job, alone, &probe->found.speed[follows][to_host][size][count][way], why);
    cuda_layers_remove(&cuda->base, layers_index);
    probe->next++;
    return err;
}

sl_err cuda_measure_step(struct cuda_device *cuda, bool *more, struct sl_error *why)
{
    if (cuda_watch_computes(cuda)) { /* figures of time-sliced kernels would be useless later */
        *more = false;
        return SL_OK;
    }
    cuda_slots_wait_all(cuda); /* no other work is timed */
    struct sl_device_stats stats = cuda->base.stats;
    sl_err err = cuda->probe == NULL ? probe_open(cuda, why) : SL_OK;
    if (err == SL_OK) {
        SL_ASSERT(cuda->probe != NULL);
        err = figure_next(cuda, cuda->probe, why);
    }
    if (err == SL_OK && cuda->probe->next == SL_CROSSOVER_FIELDS) {
        cuda->probe->found.measured = true;
        cuda->crossover = cuda->probe->found;
        if (cuda->cache_directory != NULL) {
            err = sl_crossover_save(cuda->cache_directory, &cuda->crossover, why);
        }
        cuda->measuring = false;
    }
    cuda->base.stats = stats; /* measuring is not counted as traffic */
    if (err != SL_OK) {
        cuda->measuring = false; /* the published figures remain in use */
    }
    if (!cuda->measuring) {
        cuda_measure_close(cuda);
    }
    *more = cuda->measuring;
    return err;
}
