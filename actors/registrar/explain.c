/* actors/registrar/explain.c - EXPLAIN: where a value is, or why it is absent. */
#include "actors/registrar/explain.h"
#include "actors/registrar/base/part.h"
#include "actors/registrar/memory/contributions.h"
#include "actors/registrar/records/claims.h"
#include "actors/registrar/records/ghosts.h"
#include "runtime/policy/density/density.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Limits of the message table: keys of a request, bytes of a text with its final NUL. */
#define EXPLAIN_KEYS_MAX   64u
#define EXPLAIN_TEXT_BYTES 256u

static struct sl_item_explanation explanation_of(sl_err code, const char *text)
{
    return (struct sl_item_explanation){.code = code, .text = sl_text_of(text)};
}

static struct sl_item_explanation explain_group(const struct registrar *self, sl_ref group)
{
    struct sl_group_info info;
    sl_index_group_info(self->index, group, &info);
    return info.state == SL_GROUP_COMMITTED
               ? explanation_of(SL_OK, "a block, all of its parts are here")
               : explanation_of(SL_ERR_BUSY, "its block is being written");
}

static struct sl_item_explanation explain_entry(const struct registrar *self,
                                                const struct sl_entry *entry)
{
    if (entry->kind == SL_RECORD_GROUP) {
        return explain_group(self, entry->ref);
    }
    if (entry->kind != SL_RECORD_COMMITTED) {
        return explanation_of(SL_ERR_BUSY, "being written");
    }
    if (entry->group != 0 && explain_group(self, entry->group).code != SL_OK) {
        return explanation_of(SL_ERR_BUSY, "other parts of its block are still being written");
    }
    bool in_memory = entry->extent.generation != 0;
    if (entry->disk.valid == 0) {
        return explanation_of(SL_OK, "in memory");
    }
    return explanation_of(SL_OK, in_memory ? "in memory and on disk" : "on disk");
}

/* Length of the block's key in a part's key, whose last two components are /RANK/POOL; 0: none. */
static uint64_t block_key_length(const struct sl_text *key)
{
    uint64_t length = key->length;
    for (uint32_t cut = 0; cut < 2; cut++) {
        const char *slash = memrchr(key->at, '/', length);
        if (slash == NULL || slash == key->at) {
            return 0;
        }
        length = (uint64_t)(slash - key->at);
    }
    return length;
}

/* ---- the policy's knowledge ---- */

static void text_add(char at[EXPLAIN_TEXT_BYTES], const char *format, ...) SL_PRINTF(2, 3);
static void text_add(char at[EXPLAIN_TEXT_BYTES], const char *format, ...)
{
    size_t length = strlen(at);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(at + length, EXPLAIN_TEXT_BYTES - length, format, arguments);
    va_end(arguments);
}

/* Such as "wanted once, one of 16 to 31 stored, 5210 references (12.1 s) before, worth 0.31 hits in
 * a million". */
static void judgement_add(char at[EXPLAIN_TEXT_BYTES], const struct reg_judgement *judged)
{
    char class_text[SL_DENSITY_TEXT_BYTES];
    double seconds = (double)judged->age_ns / (double)SL_NS_PER_S;
    if (!judged->classed) {
        text_add(at, judged->age_ns > 0 ? "unused for %.1f s" : "never used yet", seconds);
        return;
    }
    text_add(at, "%s, %" PRIu32 " references",
             sl_density_class_text(judged->class_index, class_text), judged->age_references);
    if (judged->age_ns > 0) {
        text_add(at, seconds < 100 ? " (%.1f s)" : " (%.0f s)", seconds);
    }
    text_add(at, " before");
    if (judged->valued) {
        text_add(at, ", worth %.3g hits in a million", (double)judged->value * 1e6);
    }
}

/* Looks for a ghost of the key, or of its block: ghosts have the keys of whole units. */
static struct sl_item_explanation explain_absence(const struct registrar *self,
                                                  const struct sl_text *key,
                                                  char at[EXPLAIN_TEXT_BYTES])
{
    struct reg_ghost ghost;
    uint64_t block_length = block_key_length(key);
    if (!reg_ghost_find(self->ghosts, key->at, key->length, &ghost) &&
        (block_length == 0 || !reg_ghost_find(self->ghosts, key->at, block_length, &ghost))) {
        return explanation_of(SL_ERR_NOT_FOUND,
                              self->ghosts->count <= self->ghosts->capacity &&
                                      self->ghosts->capacity > 0
                                  ? "not seen since the registrar started"
                                  : "not among what left recently: never stored, or long gone");
    }
    const char *text = ghost.reason == REG_GHOST_CONTRIBUTION
                           ? reg_contribution_ended_text(self, ghost.serial)
                           : reg_ghost_text(ghost.reason);
    struct sl_item_explanation explanation = explanation_of(SL_ERR_NOT_FOUND, text);
    explanation.ago_ns = SL_MAX(self->env->now_ns - ghost.at_ns, 1);
    bool judged = ghost.judged.classed || ghost.judged.age_ns > 0;
    if (judged && reg_ghost_was_evicted(&ghost)) {
        at[0] = '\0';
        text_add(at, "%s; it was ", text);
        judgement_add(at, &ghost.judged);
        explanation.text = sl_text_of(at);
    }
    return explanation;
}

/* at: buffer for a text that is composed. */
static struct sl_item_explanation
explain_key(const struct registrar *self, const struct sl_text *key, char at[EXPLAIN_TEXT_BYTES])
{
    struct sl_entry entry;
    if (sl_index_find_any(self->index, key->at, (uint32_t)key->length, &entry) == SL_OK) {
        return explain_entry(self, &entry);
    }
    if (reg_claim_by_key(self, reg_hash(key->at, key->length), key->at, (uint32_t)key->length) !=
        REG_NONE) {
        return explanation_of(SL_ERR_BUSY, "being written");
    }
    return explain_absence(self, key, at);
}

static void explain(struct registrar *self, const struct sl_msg *msg)
{
    const struct sl_texts *keys = &msg->body.explain.keys;
    struct sl_item_explanation explanations[EXPLAIN_KEYS_MAX];
    char texts[EXPLAIN_KEYS_MAX][EXPLAIN_TEXT_BYTES];
    uint64_t count = SL_MIN(keys->count, EXPLAIN_KEYS_MAX);
    for (uint64_t i = 0; i < count; i++) {
        explanations[i] = explain_key(self, &keys->at[i], texts[i]);
    }
    struct sl_msg reply = {.code = SL_OK};
    reply.body.explain_reply.items.at = explanations;
    reply.body.explain_reply.items.count = count;
    sl_reply(self->env, msg, &reply);
}

/* ---- the part ---- */

static const struct reg_handler handlers[] = {
    {SL_MSG_EXPLAIN, explain},
};

const struct reg_part reg_explain_part = {
    .name = "explain",
    REG_HANDLERS(handlers),
};
