/* actors/swapper/verify.c - what a load has brought is read again from the device, and its digest
 * compared with the one that was stored: all of it, or a share (setting load_verify). It finds what
 * no checksum on the way can: a copy that went wrong or elsewhere, or memory that does not keep it. */
#include "actors/swapper/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_SHARE   32u           /* one byte of so many */
#define PART_BYTES_MAX (64 * SL_MIB) /* larger ones are not read again */

sl_err sw_verify_init(struct swapper *self, struct sl_error *why)
{
    static const struct {
        const char *name;
        uint32_t share;
    } ways[] = {{"off", 0}, {"all", 1}, {"sample", SAMPLE_SHARE}};
    const char *text = sl_config_text(self->env->config, SL_SET_load_verify);
    for (size_t i = 0; i < SL_COUNT(ways); i++) {
        if (strcmp(text, ways[i].name) == 0) {
            self->verify.share = ways[i].share;
            return SL_OK;
        }
    }
    return sl_fail(why, SL_ERR_CONFIG, "load_verify '%.16s': sample, all and off are known", text);
}

void sw_verify_fini(struct swapper *self)
{
    free(self->verify.scratch);
    self->verify.scratch = NULL;
}

/* Room for a part that is read again; false: there is none, and it is not. */
static bool scratch_room(struct swapper *self, uint64_t bytes)
{
    if (bytes <= self->verify.scratch_bytes) {
        return true;
    }
    void *grown = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (grown == NULL) {
        return false;
    }
    free(self->verify.scratch);
    self->verify.scratch = grown;
    self->verify.scratch_bytes = bytes;
    return true;
}

/* Whether the item's turn has come: shares add up over jobs. */
static bool item_is_due(struct swapper *self, const struct sl_item_piece *item)
{
    bool told = (item->digest_low | item->digest_high) != 0 && item->layer_end == 0;
    if (!told || self->verify.share == 0 || item->length_bytes > PART_BYTES_MAX) {
        return false;
    }
    self->verify.due_bytes += item->length_bytes;
    if (self->verify.due_bytes < item->length_bytes * self->verify.share) {
        return false;
    }
    self->verify.due_bytes -= item->length_bytes * self->verify.share;
    return true;
}

/* Reads the part back, and compares. Errors: SL_ERR_CORRUPT; those of the device. */
static sl_err item_check(struct swapper *self, const struct sw_engine *engine,
                         const struct sl_item_piece *item, struct sl_error *why)
{
    const struct sw_part *part = sw_item_part(engine, item);
    if (part == NULL || !scratch_room(self, item->length_bytes)) {
        return SL_OK;
    }
    struct sl_move move = {.host = self->verify.scratch,
                           .device_block = item->device_block,
                           .layers_index = part->layers_index};
    struct sl_device *device = self->memory.device;
    sl_err err = device->ops->move(device, &move, 1, true, true, why);
    if (err != SL_OK) {
        return err;
    }
    sl_metric_add(self->env->metrics, self->metrics.verified, 1);
    sl_metric_add(self->env->metrics, self->metrics.verified_bytes, item->length_bytes);
    return move.digest.low == item->digest_low && move.digest.high == item->digest_high
               ? SL_OK
               : sl_fail(why, SL_ERR_CORRUPT,
                         "device block %" PRIu64 ", pool %" PRIu64
                         ": what arrived is not what was stored",
                         item->device_block, item->pool);
}

static void item_verify(struct swapper *self, struct sw_job *job, const struct sw_engine *engine,
                        uint32_t i)
{
    struct sl_error why = {0};
    sw_slices_end(self, true); /* of others: this is no slice */
    sl_err err = item_check(self, engine, &job->items[i], &why);
    if (sl_err_class(err) == SL_CLASS_RESTART) {
        self->fatal = err;
    }
    if (err == SL_OK) {
        return;
    }
    if (err == SL_ERR_CORRUPT) {
        sl_metric_add(self->env->metrics, self->metrics.corrupt, 1);
        sl_log_write(self->env->log, SL_LOG_ERROR, job->back.trace_id, "%s", why.text);
    }
    job->done[i >> 3] = (unsigned char)((uint32_t)job->done[i >> 3] & ~(1u << (i & 7)));
    job->done_count--;
    if (job->code == SL_OK) {
        job->code = err;
        job->why = why;
    }
}

bool sw_verify(struct swapper *self, struct sw_job *job)
{
    const struct sw_engine *engine = sw_engine_find(self, job->engine_id);
    uint64_t read_bytes = 0;
    engine = engine != NULL && engine->served != NULL ? NULL : engine; /* not mapped here */
    for (; engine != NULL && job->verified < job->item_count && self->fatal == SL_OK;
         job->verified++) {
        uint32_t i = job->verified;
        bool done = ((uint32_t)job->done[i >> 3] >> (i & 7) & 1u) != 0;
        if (read_bytes >= self->memory.device->slice_bytes) {
            return false; /* a FENCE and other jobs are not kept waiting for all */
        }
        if (done && item_is_due(self, &job->items[i])) {
            read_bytes += job->items[i].length_bytes;
            item_verify(self, job, engine, i);
        }
    }
    return true;
}
