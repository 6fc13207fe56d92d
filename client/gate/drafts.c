/* client/gate/drafts.c - see drafts.h.
 *
 * An entry is taken under the lock, and its draft is touched without it: who does so is counted, and the last
 * one drops it where that was asked for meanwhile. */
#include "client/gate/drafts.h"
#include "client/lib/draft.h"
#include "ipc/gate_protocol.h"
#include "runtime/sl_clock.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

/* At a time: one for each slot. */
#define DRAFTS_MAX SL_GATE_SLOTS

struct entry {
    struct sl_draft *draft; /* NULL: free, or not begun yet */
    uint32_t number;        /* 0: free */
    uint32_t users;         /* threads that touch the draft */
    /* In a commit, or to be dropped: nobody else takes it, and the draft is touched without the lock. */
    bool ends;
    uint64_t bytes, until_ns;
};

struct drafts {
    struct drafts_options options;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t changed;
    uint32_t begun; /* ever */
    struct entry all[DRAFTS_MAX];
};

struct drafts *drafts_create(const struct drafts_options *options)
{
    struct drafts *self = calloc(1, sizeof(*self));
    if (self != NULL) {
        self->options = *options;
        (void)pthread_mutex_init(&self->lock, NULL);
        (void)pthread_cond_init(&self->changed, NULL);
    }
    return self;
}

/* Not under the lock, of one that nobody else takes any more: the draft ends first, and then its place is free. */
static void entry_free(struct drafts *self, struct entry *entry)
{
    sl_draft_drop(&entry->draft);
    shares_let(&self->options.shares, SHARE_DRAFT_BYTES, entry->bytes);
    (void)pthread_mutex_lock(&self->lock);
    *entry = (struct entry){0};
    (void)pthread_mutex_unlock(&self->lock);
}

void drafts_destroy(struct drafts **self)
{
    struct drafts *gone = *self;
    *self = NULL;
    if (gone == NULL) {
        return;
    }
    for (uint32_t i = 0; i < DRAFTS_MAX; i++) {
        if (gone->all[i].number != 0) {
            entry_free(gone, &gone->all[i]);
        }
    }
    (void)pthread_cond_destroy(&gone->changed);
    (void)pthread_mutex_destroy(&gone->lock);
    free(gone);
}

/* Under the lock. NULL: there is none of this number that goes on. */
static struct entry *entry_find(struct drafts *self, uint32_t number)
{
    for (uint32_t i = 0; number != 0 && i < DRAFTS_MAX; i++) {
        if (self->all[i].number == number && !self->all[i].ends && self->all[i].draft != NULL) {
            return &self->all[i];
        }
    }
    return NULL;
}

/* One that its caller alone has, without a draft. NULL: all are taken. */
static struct entry *entry_new(struct drafts *self, const struct draft_wish *wish)
{
    struct entry *entry = NULL;
    (void)pthread_mutex_lock(&self->lock);
    for (uint32_t i = 0; i < DRAFTS_MAX && entry == NULL; i++) {
        entry = self->all[i].number == 0 ? &self->all[i] : NULL;
    }
    if (entry != NULL) {
        self->begun = self->begun == UINT32_MAX ? 1 : self->begun + 1;
        *entry = (struct entry){
            .number = self->begun, .bytes = wish->length_bytes, .until_ns = wish->until_ns};
    }
    (void)pthread_mutex_unlock(&self->lock);
    return entry;
}

sl_err drafts_begin(struct drafts *self, const struct draft_wish *wish, uint32_t *number,
                    sl_err *code, struct sl_error *why)
{
    const struct sl_terms terms = {.at_once = wish->at_once};
    struct sl_draft *draft = NULL;
    struct entry *entry = entry_new(self, wish);
    if (entry == NULL) {
        return sl_fail(why, SL_ERR_LIMIT, "%u drafts at a time", DRAFTS_MAX);
    }
    if (!shares_take(&self->options.shares, SHARE_DRAFT_BYTES, wish->length_bytes,
                     self->options.bytes_max, true)) {
        entry->bytes = 0;
        entry_free(self, entry);
        return sl_fail(why, SL_ERR_LIMIT, "drafts of a user have %" PRIu64 " bytes at most",
                       self->options.bytes_max);
    }
    uint64_t now_ns = sl_clock_monotonic_ns();
    sl_err err = sl_draft_begin(self->options.client, &wish->key, NULL, &wish->length_bytes, 1,
                                &terms, SL_MAX(sl_budget_ns(now_ns, wish->until_ns), 1), &draft,
                                code, SL_MAX(sl_budget_ns(now_ns, wish->deadline_ns), 1), why);
    if (draft == NULL) {
        entry_free(self, entry);
        return err;
    }
    (void)pthread_mutex_lock(&self->lock);
    *number = entry->number;
    entry->draft = draft;
    (void)pthread_mutex_unlock(&self->lock);
    return err;
}

/* To touch the draft; to be left. */
static struct entry *entry_use(struct drafts *self, uint32_t number)
{
    (void)pthread_mutex_lock(&self->lock);
    struct entry *entry = entry_find(self, number);
    if (entry != NULL) {
        entry->users++;
    }
    (void)pthread_mutex_unlock(&self->lock);
    return entry;
}

static void entry_leave(struct drafts *self, struct entry *entry)
{
    (void)pthread_mutex_lock(&self->lock);
    bool drops = --entry->users == 0 && entry->ends;
    (void)pthread_cond_broadcast(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
    if (drops) {
        entry_free(self, entry);
    }
}

sl_err drafts_fill(struct drafts *self, uint32_t number, const struct sl_piece *pieces,
                   uint32_t count, struct sl_error *why)
{
    struct entry *entry = entry_use(self, number);
    if (entry == NULL) {
        return sl_fail(why, SL_ERR_INVALID, "no draft %u", number);
    }
    sl_err err =
        sl_draft_bytes_ranges(entry->draft, SL_GATE_RANGES_MAX) > SL_GATE_RANGES_MAX
            ? sl_fail(why, SL_ERR_LIMIT, "a draft in more than %u ranges", SL_GATE_RANGES_MAX)
            : sl_draft_write(entry->draft, pieces, count, why);
    entry_leave(self, entry);
    return err;
}

sl_err drafts_commit(struct drafts *self, uint32_t number, uint64_t deadline_ns, sl_err *code,
                     struct sl_error *why)
{
    (void)pthread_mutex_lock(&self->lock);
    struct entry *entry = entry_find(self, number);
    if (entry != NULL) {
        entry->ends = true;
        entry->users++; /* so that the last one that fills it leaves it to us */
        while (entry->users > 1) {
            (void)pthread_cond_wait(&self->changed, &self->lock);
        }
    }
    (void)pthread_mutex_unlock(&self->lock);
    if (entry == NULL) {
        return sl_fail(why, SL_ERR_INVALID, "no draft %u", number);
    }
    uint64_t left_ns = sl_budget_ns(sl_clock_monotonic_ns(), deadline_ns);
    sl_err err =
        sl_draft_commit(self->options.client, &entry->draft, 1, code, SL_MAX(left_ns, 1), why);
    entry_free(self, entry); /* and drops it, where there was no memory to commit it */
    return err;
}

/* Under the lock. NULL, or one that the caller is to free. */
static struct entry *entry_end(struct entry *entry)
{
    entry->ends = true;
    return entry->users == 0 ? entry : NULL;
}

void drafts_drop(struct drafts *self, uint32_t number)
{
    (void)pthread_mutex_lock(&self->lock);
    struct entry *entry = entry_find(self, number);
    entry = entry == NULL ? NULL : entry_end(entry);
    (void)pthread_mutex_unlock(&self->lock);
    if (entry != NULL) {
        entry_free(self, entry);
    }
}

void drafts_expire(struct drafts *self, uint64_t now_ns)
{
    for (uint32_t i = 0; i < DRAFTS_MAX; i++) {
        (void)pthread_mutex_lock(&self->lock);
        struct entry *entry = &self->all[i];
        bool over = !entry->ends && entry->draft != NULL && now_ns >= entry->until_ns;
        entry = over ? entry_end(entry) : NULL;
        (void)pthread_mutex_unlock(&self->lock);
        if (entry != NULL) {
            entry_free(self, entry);
        }
    }
}
