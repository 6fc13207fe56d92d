/* actors/swapper/memory.c - opens the device, and maps and pins the arena for it. */
#include "actors/swapper/memory.h"
#include "actors/swapper/gpu.h"
#include "runtime/base/sl_spin.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How often a growing arena is checked, and one that is pinned or missing. */
#define LOOK_GROWING_NS (50 * SL_NS_PER_MS)
#define LOOK_NS         SL_NS_PER_S
/* With more threads memory is the limit, and the engine needs the cores. */
#define COPY_THREADS_MAX UINT64_C(4)
/* A swapper without a heartbeat for a second is killed without a reason; it fails before that. */
#define GPU_WAIT_NS (800 * SL_NS_PER_MS)

/* Logs the GPU that the rank's number selected: engines of the rank must use the same. */
static void gpu_log(const struct sl_env *env, uint64_t rank, const struct sl_device *device)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char gpu[SL_GPU_TEXT_BYTES];
    if (sw_gpu_is(device)) {
        sl_gpu_text(device->gpu, gpu);
        sl_log_write(env->log, SL_LOG_INFO, 0, "rank %" PRIu64 " has %s, CUDA_VISIBLE_DEVICES %s",
                     rank, gpu, visible == NULL ? "not set" : visible);
    }
}

static enum sl_beside beside_of(const char *text)
{
    return strcmp(text, "always") == 0  ? SL_BESIDE_KERNELS
           : strcmp(text, "never") == 0 ? SL_BESIDE_COPIES
                                        : SL_BESIDE_WATCH; /* auto */
}

/* Threads that copy processes' plain memory. All ranks copy at the same time and share the
 * cores. */
static uint32_t copy_threads(const struct sl_env *env)
{
    uint64_t share = sl_spin_cores() / sl_config_u64(env->config, SL_SET_ranks);
    return (uint32_t)SL_MAX(SL_MIN(share, COPY_THREADS_MAX), UINT64_C(1));
}

sl_err sw_memory_open(struct sw_memory *memory, struct sl_env *env, uint64_t rank,
                      struct sl_error *why)
{
    char cache[1200];
    memory->env = env;
    snprintf(cache, sizeof(cache), "%s/cache", env->paths->runtime_dir);
    struct sl_device_options options = {
        .name = sl_config_text(env->config, SL_SET_device),
        .device_index = (uint32_t)rank,
        .staging_bytes = sl_config_u64(env->config, SL_SET_swap_staging),
        .multiprocessors = (uint32_t)sl_config_u64(env->config, SL_SET_swap_multiprocessors),
        .beside = beside_of(sl_config_text(env->config, SL_SET_swap_kernels)),
        .copy_threads = copy_threads(env),
        .wait_ns = GPU_WAIT_NS,
        .cache_directory = cache,
        .runtime_directory = env->paths->runtime_dir,
        .measure = sl_config_bool(env->config, SL_SET_swap_measure),
    };
    sl_err err = sl_device_open(&options, &memory->device, why);
    if (err != SL_OK) {
        return err;
    }
    sl_log_write(env->log, memory->device->reduced ? SL_LOG_WARN : SL_LOG_INFO, 0, "%s",
                 memory->device->text);
    gpu_log(env, rank, memory->device);
    env->ops->wake_at(env, env->now_ns);
    return SL_OK;
}

static unsigned char *arena_base(const struct sl_arena *arena)
{
    return sl_arena_at(arena, 0, 1);
}

/* Unpins and unmaps all of it: minutes for a terabyte, with heartbeats for the supervisor. */
static void arena_close(struct sw_memory *memory, struct sl_arena **arena)
{
    while (*arena != NULL && memory->device != NULL &&
           !sl_device_host_remove(memory->device, arena_base(*arena))) {
        sl_metrics_beat_now(memory->env->metrics);
    }
    sl_arena_close(arena);
}

void sw_memory_close(struct sw_memory *memory)
{
    arena_close(memory, &memory->arena);
    for (uint32_t i = 0; i < SW_FORMER_ARENAS_MAX; i++) {
        arena_close(memory, &memory->former_arenas[i]);
    }
    sl_device_close(&memory->device);
}

/* A former arena of the node that is not unpinned yet; NULL: none. */
static struct sl_arena **arena_to_unpin(struct sw_memory *memory)
{
    for (uint32_t i = 0; i < SW_FORMER_ARENAS_MAX; i++) {
        if (memory->former_arenas[i] != NULL) {
            return &memory->former_arenas[i];
        }
    }
    return NULL;
}

static void arena_leave_step(struct sw_memory *memory, struct sl_arena **arena)
{
    if (sl_device_host_remove(memory->device, arena_base(*arena))) {
        sl_arena_close(arena);
    }
}

/* The node has a new arena, which later slices use. Slices in flight use the old one, which stays
 * mapped until they are hashed. */
static sl_err arena_replace(struct sw_memory *memory, struct sl_error *why)
{
    for (uint32_t i = 0; i < SW_FORMER_ARENAS_MAX; i++) {
        if (memory->former_arenas[i] == NULL) {
            memory->former_arenas[i] = SL_TAKE(memory->arena);
            if (!memory->slices_use_arena) {
                arena_leave_step(memory, &memory->former_arenas[i]);
            }
            return SL_OK;
        }
    }
    return sl_fail(why, SL_ERR_LIMIT, "%u former arenas are still pinned", SW_FORMER_ARENAS_MAX);
}

sl_err sw_arena(struct sw_memory *memory, struct sl_error *why)
{
    const char *directory = memory->env->paths->shm_dir;
    struct sl_arena **mapped = &memory->arena;
    /* Checked once: a small COPY should make few system calls. */
    sl_err err = *mapped == NULL ? SL_ERR_STALE : sl_arena_current(*mapped, directory);
    if (err == SL_ERR_STALE) {
        err = *mapped != NULL ? arena_replace(memory, why) : SL_OK;
        err = err == SL_OK ? sl_arena_attach(directory, 0, true, mapped, why) : err;
    }
    if (err != SL_OK) { /* a missing shm file is the node's fault, not the caller's */
        return err == SL_ERR_NOT_FOUND
                   ? sl_fail(why, SL_ERR_UNREACHABLE, "the node has no shm file 'arena.0'")
                   : err;
    }
    return sl_device_host_add(memory->device, arena_base(*mapped), sl_arena_data_bytes(*mapped),
                              sl_arena_populated_bytes(*mapped), why);
}

/* Maps the arena before the first copy needs it, and follows its growth. */
static void arena_look(struct sw_memory *memory)
{
    struct sl_env *env = memory->env;
    if (memory->look_ns > env->now_ns) {
        return;
    }
    sl_err err = sw_arena(memory, NULL); /* an error: tries again */
    const struct sl_arena *arena = memory->arena;
    bool growing = err == SL_OK && sl_arena_populated_bytes(arena) < sl_arena_data_bytes(arena);
    memory->look_ns = sl_deadline_ns(env->now_ns, growing ? LOOK_GROWING_NS : LOOK_NS);
}

sl_err sw_memory_idle(struct sw_memory *memory)
{
    struct sl_env *env = memory->env;
    struct sl_error why = {0};
    bool more = false;
    if (!memory->announced && strcmp(sl_config_text(env->config, SL_SET_device), "host") != 0) {
        sl_metrics_health(env->metrics,
                          memory->device->reduced ? SL_HEALTH_DEGRADED : SL_HEALTH_READY,
                          memory->device->text);
    }
    memory->announced = true;
    if (memory->device->ops->work == NULL) {
        return SL_OK;
    }
    struct sl_arena **former_arenas = arena_to_unpin(memory);
    if (former_arenas != NULL) {
        arena_leave_step(memory, former_arenas);
    } else {
        arena_look(memory);
    }
    if (former_arenas != NULL || arena_to_unpin(memory) != NULL) { /* one step at a time */
        sw_memory_publish(memory);
        env->ops->wake_at(env, env->now_ns);
        return SL_OK;
    }
    sl_err err = sl_device_work(memory->device, &more, &why);
    if (err != SL_OK) {
        bool fatal = sl_err_class(err) == SL_CLASS_RESTART;
        sl_log_write(env->log, fatal ? SL_LOG_ERROR : SL_LOG_WARN, 0, "%s%s", why.text,
                     fatal ? "" : ", copies continue without it");
        if (fatal) {
            return err;
        }
        sl_metrics_health(env->metrics, SL_HEALTH_DEGRADED, why.text);
    }
    sw_memory_publish(memory);
    env->ops->wake_at(env, more ? env->now_ns : memory->look_ns);
    return SL_OK;
}

bool sw_memory_unpin_due(struct sw_memory *memory)
{
    return arena_to_unpin(memory) != NULL;
}

void sw_memory_publish(struct sw_memory *memory)
{
    struct sl_metrics *page = memory->env->metrics;
    const struct sl_device_stats *stats = &memory->device->stats;
    sl_metric_set(page, memory->pinned, stats->pinned_bytes);
    sl_metric_set(page, memory->bounced, stats->bounced_bytes);
    sl_metric_set(page, memory->copies, stats->copies);
    sl_metric_set(page, memory->batches, stats->batches);
    sl_metric_set(page, memory->kernels, stats->kernels);
    sl_metric_set(page, memory->drains, stats->drains);
    sl_metric_set(page, memory->computes, stats->computes);
    sl_metric_set(page, memory->threads, stats->copy_threads);
}
