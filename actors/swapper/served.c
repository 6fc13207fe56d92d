/* actors/swapper/served.c - see served.h. */
#include "actors/swapper/internal.h"
#include "ipc/sl_index.h"
#include "runtime/sl_clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The next look comes after an eighth of the wait so far, within bounds: a copy takes a
 * millisecond, and a process that is stopped, hours. */
#define LOOK_NS_MIN (20 * SL_NS_PER_US)
#define LOOK_NS_MAX (10 * SL_NS_PER_MS)
/* A FENCE waits so long for copiers that are in a step: some 30 us, and more where cores are few. */
#define SETTLE_NS (20 * SL_NS_PER_MS)

/* ---- a link ---- */

static struct sl_copier_room room_of(const struct sl_device *device, const struct sw_engine *engine)
{
    struct sl_copier_room room = {.data_bytes = device->slice_bytes,
                                  .run_count = SL_DEVICE_SLICE_RUNS_MAX};
    for (uint32_t i = 0; i < SW_POOLS_MAX * SW_PARTS_MAX; i++) {
        const struct sw_part *part = sw_engine_part(engine, i / SW_PARTS_MAX, i % SW_PARTS_MAX);
        if (part != NULL) { /* one part alone is a slice, however large */
            room.data_bytes = SL_MAX(room.data_bytes, part->value_bytes);
            room.run_count = SL_MAX(room.run_count, (uint32_t)part->runs);
        }
    }
    return room;
}

static sl_err served_connect(struct sw_served *served, const char *runtime_dir,
                             struct sl_error *why)
{
    if (runtime_dir == NULL) {
        return sl_fail(why, SL_ERR_PERMISSION, "process %u cannot be asked: no runtime directory",
                       served->proc.pid);
    }
    return sl_copier_connect(runtime_dir, served->proc, served->number, &served->room,
                             &served->link, why);
}

sl_err sw_served_open(const struct sw_mapper *mapper, const struct sw_engine *engine,
                      const struct sl_memory_handle *handle, struct sw_served **out,
                      struct sl_error *why)
{
    struct sl_memory_name name;
    struct sw_served *served = calloc(1, sizeof(*served));
    memcpy(&name, handle->ipc, sizeof(name));
    if (served != NULL) {
        served->proc = (struct sl_proc_id){.pid = handle->pid, .start_time = handle->start_time};
        served->number = name.number;
        served->room = room_of(mapper->device, engine);
        served->slice = calloc(1, sizeof(*served->slice));
    }
    if (served == NULL || served->slice == NULL) {
        sw_served_close(&served);
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for copies by process %u", handle->pid);
    }
    sl_err err = served_connect(served, mapper->runtime_dir, why);
    if (err != SL_OK) {
        sw_served_close(&served);
        return err;
    }
    *out = served;
    return SL_OK;
}

void sw_served_close(struct sw_served **served)
{
    if (*served != NULL) {
        sl_copier_disconnect(&(*served)->link);
        free((*served)->slice);
        free(*served);
        *served = NULL;
    }
}

/* ---- a request ---- */

bool sw_served_busy(const struct sw_engine *engine)
{
    return engine->served != NULL && engine->served->busy;
}

/* Where the bytes of the move begin in the value, and how many they are. */
static struct sl_copier_run move_extent(const struct sw_part *part, const struct sl_move *move)
{
    uint32_t end = move->layer_end != 0 ? move->layer_end : part->layer_count;
    uint64_t from = part->layer_offsets[move->first_layer];
    return (struct sl_copier_run){.address = from, .length_bytes = part->layer_offsets[end] - from};
}

static uint32_t run_add(struct sl_copier_run *runs, uint32_t count, uint64_t address,
                        uint64_t length_bytes)
{
    if (count > 0 && runs[count - 1].address + runs[count - 1].length_bytes == address) {
        runs[count - 1].length_bytes += length_bytes;
        return count;
    }
    runs[count] = (struct sl_copier_run){.address = address, .length_bytes = length_bytes};
    return count + 1;
}

/* The runs of a move, in the order of the value. Gives how many there are now. */
static uint32_t move_runs(const struct sw_part *part, const struct sl_move *move,
                          struct sl_copier_run *runs, uint32_t count)
{
    uint32_t end = move->layer_end != 0 ? move->layer_end : part->layer_count;
    for (uint32_t l = move->first_layer; l < end; l++) {
        const struct sl_layer *layer = &part->layers[l];
        uint64_t run_bytes =
            layer->fragment_bytes == 0 ? layer->piece_bytes : layer->fragment_bytes;
        uint64_t address = (uintptr_t)layer->base + move->device_block * layer->block_stride_bytes;
        for (uint64_t at = 0; at < layer->piece_bytes; at += run_bytes) {
            count = run_add(runs, count, address, run_bytes);
            address += layer->fragment_stride_bytes;
        }
    }
    return count;
}

static const struct sw_part *slice_part(const struct sw_engine *engine,
                                        const struct sw_slice *slice, uint32_t i)
{
    const struct sw_part *part = sw_item_part(engine, &slice->job->items[slice->parts[i].item]);
    SL_ASSERT(part != NULL);
    return part;
}

sl_err sw_served_begin(struct swapper *self, struct sw_job *job, struct sw_engine *engine,
                       uint64_t *bytes, struct sl_error *why)
{
    struct sw_served *served = engine->served;
    struct sw_slice *slice = served->slice;
    uint32_t run_count = 0;
    uint64_t at_bytes = 0;
    SL_ASSERT(!served->busy);
    if (served->link == NULL) {
        sl_err err = served_connect(served, self->env->paths->runtime_dir, why);
        if (err != SL_OK) {
            return err;
        }
    }
    slice->job = job;
    *bytes = sw_slice_pick(self, slice, job, engine);
    if (slice->count == 0) {
        return SL_OK;
    }
    for (uint32_t i = 0; i < slice->count; i++) {
        const struct sw_part *part = slice_part(engine, slice, i);
        struct sl_copier_run extent = move_extent(part, &slice->moves[i]);
        run_count = move_runs(part, &slice->moves[i], sl_copier_runs(served->link), run_count);
        if (!job->out) {
            memcpy(sl_copier_data(served->link) + at_bytes, slice->moves[i].host + extent.address,
                   extent.length_bytes);
        }
        at_bytes += extent.length_bytes;
    }
    sl_err err = sl_copier_ask(served->link, run_count, !job->out, why);
    if (err != SL_OK) {
        sl_copier_disconnect(&served->link);
        return err;
    }
    job->slices++;
    served->busy = true;
    served->out = job->out;
    served->asked_ns = sl_clock_monotonic_ns();
    served->again_ns = 0;
    return SL_OK;
}

/* ---- its end ---- */

/* What came, if its extent is still the writer's: an answer comes late, and a FENCE of claims did
 * not wait for it. */
static void values_take(struct swapper *self, struct sw_engine *engine)
{
    struct sw_slice *slice = engine->served->slice;
    const unsigned char *data = sl_copier_data(engine->served->link);
    for (uint32_t i = 0; i < slice->count; i++) {
        const struct sl_item_piece *item = &slice->job->items[slice->parts[i].item];
        struct sl_move *move = &slice->moves[i];
        struct sl_copier_run extent = move_extent(slice_part(engine, slice, i), move);
        const struct sl_arena *arena = self->memory.arenas[item->arena];
        move->host =
            arena == NULL ? NULL : sl_arena_at(arena, item->offset_bytes, item->length_bytes);
        if (move->host != NULL &&
            sl_index_claim_stands(self->view, (sl_ref)item->ref, item->generation)) {
            move->digest = sl_digest_copy(move->host + extent.address, data, extent.length_bytes);
            move->done = 1;
        } else {
            slice->parts[i].bytes = 0;
            sl_metric_add(self->env->metrics, self->metrics.claims_gone, 1);
        }
        data += extent.length_bytes;
    }
}

/* Moves whose claim ended are not done, and no failure. */
static void slice_shrink(struct sw_slice *slice)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < slice->count; i++) {
        if (slice->moves[i].done != 0) {
            slice->moves[kept] = slice->moves[i];
            slice->parts[kept++] = slice->parts[i];
        }
    }
    slice->count = kept;
}

static void served_over(struct swapper *self, struct sw_engine *engine, sl_err err,
                        const struct sl_error *why)
{
    struct sw_served *served = engine->served;
    struct sw_slice *slice = served->slice;
    served->busy = false;
    if (slice->job == NULL) {
        return;
    }
    if (err == SL_OK && served->out) {
        values_take(self, engine);
        slice_shrink(slice);
    } else if (err == SL_OK) {
        for (uint32_t i = 0; i < slice->count; i++) {
            slice->moves[i].done = 1;
        }
    }
    sw_slice_over(slice, err, why);
    slice->job = NULL;
}

/* Its end is that of the COPY, which has its reason by now. */
static void revoked_look(struct swapper *self, struct sw_engine *engine)
{
    struct sw_served *served = engine->served;
    if (sl_copier_settled(served->link)) {
        served->revoked = false;
        served_over(self, engine, SL_ERR_CANCELLED, NULL);
        sl_copier_disconnect(&served->link);
    }
}

static void served_look(struct swapper *self, struct sw_engine *engine)
{
    struct sw_served *served = engine->served;
    struct sl_error why = {0};
    bool over = false;
    if (served->revoked) {
        revoked_look(self, engine);
        return;
    }
    sl_err err = sl_copier_poll(served->link, &over, &why);
    if (!over) {
        return;
    }
    served_over(self, engine, err, &why);
    if (err != SL_OK && err != SL_ERR_STALE && err != SL_ERR_CANCELLED) {
        sl_copier_disconnect(&served->link);
    }
}

void sw_served_look(struct swapper *self, uint64_t *again_ns)
{
    for (uint32_t i = 0; i < self->engine_count; i++) {
        struct sw_engine *engine = &self->engines[i];
        if (engine->state != SW_ENGINE_READY || !sw_served_busy(engine)) {
            continue;
        }
        struct sw_served *served = engine->served;
        uint64_t now_ns = sl_clock_monotonic_ns();
        if (now_ns >= served->again_ns) {
            served_look(self, engine);
            uint64_t pause_ns = (now_ns - served->asked_ns) / 8;
            served->again_ns = now_ns + SL_MIN(SL_MAX(pause_ns, LOOK_NS_MIN), LOOK_NS_MAX);
        }
        if (again_ns != NULL && served->busy) { /* the environment's clock may stand still */
            *again_ns = SL_MIN(*again_ns, self->env->now_ns + (served->again_ns - now_ns));
        }
    }
}

bool sw_served_leave(struct swapper *self, struct sw_job *job)
{
    struct sw_engine *engine = sw_engine_find(self, job->engine_id);
    SL_ASSERT(engine != NULL && engine->served != NULL);
    struct sw_served *served = engine->served;
    if (!served->busy || served->slice->job != job) {
        return true;
    }
    if (served->out) {
        sl_copier_cancel(served->link);
        served->slice->job = NULL;
        job->slices--;
        return true;
    }
    if (!served->revoked) {
        sl_copier_revoke(served->link);
        served->revoked = true;
    }
    revoked_look(self, engine);
    return !served->busy;
}

void sw_served_settle(struct swapper *self)
{
    const struct timespec pause = {.tv_nsec = (long)LOOK_NS_MIN};
    uint64_t end_ns = sl_deadline_ns(sl_clock_monotonic_ns(), SETTLE_NS);
    for (;;) {
        bool waits = false;
        for (uint32_t i = 0; i < self->engine_count; i++) {
            struct sw_engine *engine = &self->engines[i];
            if (engine->state != SW_ENGINE_READY || !sw_served_busy(engine) ||
                engine->served->slice->job == NULL || engine->served->slice->job->code == SL_OK) {
                continue; /* none of those that were cancelled */
            }
            served_look(self, engine);
            waits |= engine->served->busy;
        }
        if (!waits || sl_clock_monotonic_ns() >= end_ns) {
            return;
        }
        (void)nanosleep(&pause, NULL);
    }
}

void sw_served_end(struct swapper *self, struct sw_engine *engine)
{
    struct sl_error why = {0};
    if (engine->state != SW_ENGINE_READY || engine->served == NULL) {
        return;
    }
    if (engine->served->busy && !engine->served->out) {
        const struct timespec pause = {.tv_nsec = (long)LOOK_NS_MIN};
        uint64_t end_ns = sl_deadline_ns(sl_clock_monotonic_ns(), SETTLE_NS);
        sl_copier_revoke(engine->served->link);
        while (!sl_copier_settled(engine->served->link) && sl_clock_monotonic_ns() < end_ns) {
            (void)nanosleep(&pause, NULL);
        }
    }
    if (engine->served->busy) {
        sl_err err = sl_fail(&why, SL_ERR_NOT_FOUND, "engine %llu: its process copies no more",
                             (unsigned long long)engine->engine_id);
        served_over(self, engine, err, &why);
    }
    engine->served->revoked = false;
    sl_copier_disconnect(&engine->served->link);
}
