/* client/lib/gpu_pins.c - see gpu_pins.h. */
#include "client/lib/gpu_pins.h"

#include "cuda/cuda_relaxed.h"
#include "runtime/base/sl_backoff.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_signals.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define REGIONS_MAX 64u

/* State of a slice of SL_GPU_PIN_BYTES. */
enum { PIN_NEW, PIN_WANTED, PIN_PINNED, PIN_NEVER };

/* An arena and its pinned slices; for all devices. */
struct region {
    const struct sl_arena *arena; /* NULL: unused */
    unsigned char *base;
    uint64_t length_bytes;
    unsigned char *slices;               /* one PIN_... each */
    uint64_t wanted_count, wanted_first; /* no slice before wanted_first is wanted */
    uint64_t retry_ns, backoff_ns;       /* next attempt; pause before it */
    bool leaving;                        /* about to be unmapped */
};

static struct {
    pthread_mutex_t lock; /* guards all of it; never held during a slow call of the driver */
    pthread_cond_t turn;  /* signalled when a step or the thread ends */
    struct region regions[REGIONS_MAX];
    const struct sl_driver *driver;
    sl_cu_device device;
    const struct region *busy; /* the region in which the thread is pinning */
    bool working;              /* there is a thread */
    pid_t pid;                 /* process that owns the thread: a fork has none */
} pins = {.lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_COND_INITIALIZER};

/* ---- regions ---- */

static uint64_t slices_of(uint64_t length_bytes)
{
    return (length_bytes + SL_GPU_PIN_BYTES - 1) / SL_GPU_PIN_BYTES;
}

static uint64_t slice_end(const struct region *region, uint64_t slice)
{
    return SL_MIN((slice + 1) * SL_GPU_PIN_BYTES, region->length_bytes);
}

static struct region *region_find(const struct sl_arena *arena)
{
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
        if (pins.regions[i].arena == arena) {
            return &pins.regions[i];
        }
    }
    return NULL;
}

static struct region *region_of(const struct sl_arena *arena)
{
    struct region *region = region_find(arena);
    if (region != NULL) {
        return region;
    }
    region = region_find(NULL);
    uint64_t length_bytes = sl_arena_data_bytes(arena);
    void *base = sl_arena_at(arena, 0, 1);
    unsigned char *slices =
        region == NULL || base == NULL ? NULL : calloc(slices_of(length_bytes), 1);
    if (slices == NULL) {
        return NULL;
    }
    *region = (struct region){.arena = arena,
                              .base = base,
                              .length_bytes = length_bytes,
                              .slices = slices,
                              .backoff_ns = SL_GPU_PIN_RETRY_NS};
    return region;
}

/* ---- the thread ---- */

/* The first slice that can be pinned now. */
static struct region *wanted_find(uint64_t *slice)
{
    uint64_t now_ns = sl_clock_monotonic_ns();
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
        struct region *region = &pins.regions[i];
        if (region->arena == NULL || region->leaving || region->wanted_count == 0 ||
            region->retry_ns > now_ns) {
            continue;
        }
        uint64_t at = region->wanted_first;
        while (region->slices[at] != PIN_WANTED) {
            at++;
        }
        region->wanted_first = at;
        *slice = at;
        return region;
    }
    return NULL;
}

/* An error that is permanent for this memory or process, so that a retry is useless. */
static bool never_can(sl_cu_result result)
{
    return result == SL_CU_INVALID_VALUE || result == SL_CU_NOT_PERMITTED ||
           result == SL_CU_NOT_SUPPORTED;
}

static void region_postpone(struct region *region)
{
    uint64_t pause_ns = sl_backoff_next(&region->backoff_ns, SL_GPU_PIN_RETRY_NS_MAX);
    region->retry_ns = sl_deadline_ns(sl_clock_monotonic_ns(), pause_ns);
}

static void step_settle(struct region *region, uint64_t slice, sl_cu_result result)
{
    if (result != 0 && !never_can(result)) {
        region_postpone(region);
        return;
    }
    region->slices[slice] = result == 0 ? PIN_PINNED : PIN_NEVER;
    region->wanted_count--;
    if (result == 0) {
        region->backoff_ns = SL_GPU_PIN_RETRY_NS;
    }
}

/* Under the lock, which it releases meanwhile. */
static void step_do(sl_cu_context context, struct region *region, uint64_t slice)
{
    const struct sl_driver *driver = pins.driver;
    unsigned char *at = region->base + slice * SL_GPU_PIN_BYTES;
    uint64_t length_bytes = slice_end(region, slice) - slice * SL_GPU_PIN_BYTES;
    sl_cu_context before = NULL;
    pins.busy = region;
    pthread_mutex_unlock(&pins.lock);
    uint64_t begun_ns = sl_clock_monotonic_ns();
    sl_cu_result result = driver->context_push(context);
    if (result == 0) {
        result =
            driver->host_register(at, length_bytes, SL_CU_HOST_PORTABLE | SL_CU_HOST_DEVICEMAP);
        (void)driver->context_pop(&before);
    }
    uint64_t took_ns = sl_clock_monotonic_ns() - begun_ns;
    pthread_mutex_lock(&pins.lock);
    step_settle(region, slice, result);
    pins.busy = NULL;
    pthread_cond_broadcast(&pins.turn);
    /* Pauses as long as the step took: the engine's driver calls wait at most half of the time. */
    struct timespec pause = {.tv_nsec = (long)SL_MIN(took_ns, 10 * SL_NS_PER_MS)};
    pthread_mutex_unlock(&pins.lock);
    (void)nanosleep(&pause, NULL);
    pthread_mutex_lock(&pins.lock);
}

/* Pins all slices that are wanted now, in the device's context. */
static void wanted_pin(const struct sl_driver *driver, sl_cu_device device)
{
    uint64_t slice = 0;
    struct region *region = NULL;
    sl_cu_context context = NULL;
    bool taken = driver->context_retain(&context, device) == 0;
    pthread_mutex_lock(&pins.lock);
    while ((region = wanted_find(&slice)) != NULL) {
        if (taken) {
            step_do(context, region, slice);
        } else {
            region_postpone(region);
        }
    }
    pthread_mutex_unlock(&pins.lock);
    if (taken) {
        (void)driver->context_release(device);
    }
}

/* Runs while there is something to pin. */
static void *pinner(void *nothing)
{
    uint64_t slice = 0;
    pthread_mutex_lock(&pins.lock);
    const struct sl_driver *driver = pins.driver;
    (void)sl_cuda_relax(driver); /* until the thread ends */
    do {
        sl_cu_device device = pins.device;
        pthread_mutex_unlock(&pins.lock);
        wanted_pin(driver, device);
        pthread_mutex_lock(&pins.lock);
    } while (wanted_find(&slice) != NULL);
    pins.working = false;
    pthread_cond_broadcast(&pins.turn);
    pthread_mutex_unlock(&pins.lock);
    return nothing;
}

/* Blocks signals in the thread. If no thread can be created, all copies use the bounce buffer. */
static void pinner_start(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    if ((pins.working && pins.pid == getpid()) || pthread_attr_init(&attributes) != 0) {
        return;
    }
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sl_signals_of_others(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    pins.working = pthread_create(&thread, &attributes, pinner, NULL) == 0;
    pins.pid = getpid();
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
}

/* ---- for the copies ---- */

uint64_t sl_gpu_pins_run(const struct sl_driver *driver, sl_cu_device device,
                         const struct sl_arena *arena, const unsigned char *at,
                         uint64_t length_bytes)
{
    uint64_t run = 0;
    pthread_mutex_lock(&pins.lock);
    struct region *region = region_of(arena);
    if (region == NULL) {
        pthread_mutex_unlock(&pins.lock);
        return 0;
    }
    uint64_t offset = (uint64_t)(at - region->base);
    uint64_t slice = offset / SL_GPU_PIN_BYTES;
    uint64_t end = slice_end(region, slice);
    unsigned char *state = &region->slices[slice];
    /* Pinning must not populate memory, for which the system may have no room. Pinned memory must
     * not be freed to the system. */
    if (*state == PIN_NEW && end <= sl_arena_populated_bytes(arena) &&
        sl_arena_forbid_freeing(arena)) {
        *state = PIN_WANTED;
        region->wanted_first =
            region->wanted_count == 0 ? slice : SL_MIN(region->wanted_first, slice);
        region->wanted_count++;
    }
    if (*state == PIN_WANTED && region->retry_ns <= sl_clock_monotonic_ns()) {
        pins.driver = driver;
        pins.device = device;
        pinner_start();
    }
    run = *state == PIN_PINNED ? SL_MIN(length_bytes, end - offset) : 0;
    pthread_mutex_unlock(&pins.lock);
    return run;
}

bool sl_gpu_pins_know(const struct sl_arena *arena)
{
    pthread_mutex_lock(&pins.lock);
    bool known = arena != NULL && region_find(arena) != NULL;
    pthread_mutex_unlock(&pins.lock);
    return known;
}

/* Removes the region from the table. Unpinning takes long, and is done without the lock. */
static void region_forget(struct region *region, bool keep)
{
    struct region gone = *region;
    *region = (struct region){0};
    pthread_mutex_unlock(&pins.lock);
    for (uint64_t i = 0; i < slices_of(gone.length_bytes) && !keep; i++) {
        if (gone.slices[i] == PIN_PINNED) {
            (void)pins.driver->host_unregister(gone.base + i * SL_GPU_PIN_BYTES);
        }
    }
    free(gone.slices);
    pthread_mutex_lock(&pins.lock);
}

void sl_gpu_pins_forget(const struct sl_arena *arena, bool keep)
{
    pthread_mutex_lock(&pins.lock);
    bool ours = pins.pid == getpid(); /* a fork has no thread to wait for */
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
        struct region *region = &pins.regions[i];
        const struct sl_arena *of = region->arena;
        if (of == NULL || (arena != NULL && of != arena)) {
            continue;
        }
        region->leaving = true;
        while (ours && pins.busy == region) {
            pthread_cond_wait(&pins.turn, &pins.lock);
        }
        if (region->arena == of) { /* no other thread has removed it meanwhile */
            region_forget(region, keep);
        }
    }
    while (arena == NULL && ours && pins.working) {
        pthread_cond_wait(&pins.turn, &pins.lock);
    }
    pthread_mutex_unlock(&pins.lock);
}
