/* actors/coordinator/accounts.c - counts ended ops, and logs why blocks are missing. */
#include "actors/coordinator/internal.h"

#include <inttypes.h>
#include <stdio.h>

/* Missing blocks by which the load's prefix would be longer with unlimited memory: those that were
 * here once, up to the first that never was. */
static uint32_t seen_count(struct coordinator *self, const struct co_op *op)
{
    uint32_t at = op->at;
    if (op->type->kind == CO_STORE || op->code != SL_OK || op->engine == NULL ||
        at >= op->block_count || op->blocks == NULL || op->blocks[at].key.length == 0) {
        return 0;
    }
    sl_seen_follow(self->env->paths->shm_dir, &self->seen);
    while (at < op->block_count && op->blocks[at].key.length > 0 && /* the rest has no keys */
           sl_seen_has(self->seen, co_block_hash(op->engine, &op->blocks[at].key))) {
        at++;
    }
    return at - op->at;
}

/* Counts the same by model. */
static void model_account(struct coordinator *self, const struct co_op *op, uint32_t stored,
                          uint32_t existed, uint32_t seen)
{
    bool store = op->type->kind == CO_STORE;
    uint32_t rest = store ? op->block_count - stored - existed : op->block_count - op->at;
    const struct {
        enum sl_label_count count;
        uint64_t amount;
    } stores[] = {{SL_LABEL_STORED, stored},
                  {SL_LABEL_EXISTED, existed},
                  {SL_LABEL_REFUSED, rest},
                  {SL_LABEL_STORED_BYTES, op->bytes}},
      loads[] = {{SL_LABEL_MEMORY, op->from_memory},
                 {SL_LABEL_DISK, op->from_disk},
                 {SL_LABEL_REMOTE, op->from_remote},
                 {op->code == SL_OK ? SL_LABEL_NONE : SL_LABEL_FAILED, rest},
                 {SL_LABEL_SEEN, seen},
                 {SL_LABEL_BYTES, op->bytes}},
      *counts = store ? stores : loads;
    sl_labels_follow(self->env->paths->shm_dir, &self->labels);
    bool known = op->engine != NULL && op->engine->model[0] != '\0';
    uint32_t label = known ? sl_label_find(self->labels, SL_LABEL_MODEL, op->engine->model, "",
                                           &op->engine->model_place)
                           : SL_LABEL_MODEL;
    for (size_t i = 0; i < (store ? SL_COUNT(stores) : SL_COUNT(loads)); i++) {
        sl_label_add(self->labels, label, 0, counts[i].count, counts[i].amount);
    }
}

void co_refused_account(struct coordinator *self, bool store, uint32_t block_count)
{
    co_count(self, store ? self->metric.block_refused_count : self->metric.block_failed_count,
             block_count);
    sl_labels_follow(self->env->paths->shm_dir, &self->labels);
    sl_label_add(self->labels, SL_LABEL_MODEL, 0, store ? SL_LABEL_REFUSED : SL_LABEL_FAILED,
                 block_count);
}

/* Counts the ended op, and logs one line with the reason for missing blocks. */
static void op_account(struct coordinator *self, struct co_op *op)
{
    const struct co_metrics *metric = &self->metric;
    bool store = op->type->kind == CO_STORE;
    uint64_t took_ns = self->env->now_ns - op->started_ns;
    uint32_t stored = 0, existed = 0, seen = seen_count(self, op);
    sl_histogram_add(self->env->metrics, store ? metric->store_ns : metric->load_ns, took_ns);
    if (store) {
        stored = co_bits_count(op->stored, op->block_count);
        existed = co_bits_count(op->existed, op->block_count);
        co_count(self, metric->block_stored_count, stored);
        co_count(self, metric->block_existed_count, existed);
        co_count(self, metric->block_refused_count, op->block_count - stored - existed);
        co_count(self, metric->stored_bytes, op->bytes);
    } else {
        co_count(self, metric->block_from_memory_count, op->from_memory);
        co_count(self, metric->block_from_disk_count, op->from_disk);
        co_count(self, metric->block_from_remote_count, op->from_remote);
        co_count(self, op->code == SL_OK ? metric->block_missed_count : metric->block_failed_count,
                 op->block_count - op->at);
        co_count(self, metric->loaded_bytes, op->bytes);
    }
    co_count(self, metric->block_seen_count, seen);
    model_account(self, op, stored, existed, seen);
    co_count(self, metric->op_failed_count, op->code != SL_OK);
    co_count(self, metric->op_timeout_count, op->code == SL_ERR_TIMEOUT);
    co_count(self, metric->op_cancelled_count, op->code == SL_ERR_CANCELLED);
    enum sl_log_level level = op->code == SL_OK ? SL_LOG_DEBUG : SL_LOG_WARN;
    level = op->code == SL_ERR_CANCELLED || op->code == SL_ERR_PEER_DIED ? SL_LOG_INFO : level;
    bool logged = self->logs_loads && !store && level == SL_LOG_DEBUG;
    level = logged ? SL_LOG_INFO : level;
    const char *request = op->origin.request != NULL ? op->origin.request : "";
    char what[128];
    if (store) {
        (void)snprintf(what, sizeof(what), "%u stored, %u existed", stored, existed);
    } else {
        (void)snprintf(what, sizeof(what), "%u loaded (%u memory, %u disk, %u remote)", op->at,
                       op->from_memory, op->from_disk, op->from_remote);
    }
    sl_log_write(self->env->log, level, op->trace_id,
                 "%s of %u blocks for %s%s%s: %s, %" PRIu64 " us%s%s", store ? "store" : "load",
                 op->block_count, op->back.to, request[0] != '\0' ? ", request " : "", request,
                 what, took_ns / SL_NS_PER_US, op->reason[0] != '\0' ? ": " : "", op->reason);
    co_trace(self, op, store ? "store ended" : "load ended", sl_err_name(op->code),
             store ? stored + existed : op->at);
}

const struct co_feature co_accounts = {.ended = op_account};
