/* runtime/net/directory/lookups.c - lookups of the nodes that may hold keys, in batches. */
#include "runtime/base/sl_parse.h"
#include "runtime/net/directory/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOKUP_BYTES (KEY_BYTES + 40u)
#define CLEAN_MAX    4u  /* dead holders of a key removed at a time */
#define CROWDED      16u /* number of holders above which dead ones are removed */

void directory_lookup_end(struct sl_directory *self, struct lookup *lookup, sl_err code)
{
    uint32_t count = lookup->count;
    lookup->over = true;
    lookup->used = lookup->left > 0; /* outstanding replies refer to the slot */
    if (code != SL_OK) {
        self->events.found(self->events.context, lookup->cookie, code, NULL, 0);
        return;
    }
    for (uint32_t k = 0; k < count; k++) {
        struct sl_directory_found *found = &self->found[k];
        found->holder_count = lookup->keys[k].count;
        for (uint32_t i = 0; i < found->holder_count; i++) {
            found->holders[i] = &self->members->at[lookup->keys[k].members[i]];
        }
    }
    self->events.found(self->events.context, lookup->cookie, SL_OK, self->found, count);
}

void directory_lookups_expire(struct sl_directory *self, uint64_t now_ns)
{
    for (uint32_t i = 0; i < SL_DIRECTORY_LOOKUPS_MAX; i++) {
        struct lookup *lookup = &self->lookups[i];
        if (lookup->used && !lookup->over && now_ns >= lookup->deadline_ns) {
            self->stats.lookup_timeouts++;
            directory_lookup_end(self, lookup, SL_ERR_TIMEOUT);
        }
    }
}

/* Removes a node that no longer exists from a key with many holders. Nothing else would, while some
 * node holds the key. */
static void holder_clean(struct sl_directory *self, uint64_t id, const char *name)
{
    char key[KEY_BYTES];
    if (link_has_room(&self->link, 1, COMMAND_BYTES)) {
        link_send(&self->link, LINK_WORDS("HDEL", directory_key_of_id(self, key, id), name),
                  WHAT_OTHER, 0);
    }
}

/* Reads pairs of name and incarnation. */
static void holders_read(struct sl_directory *self, struct lookup *lookup, uint32_t k,
                         const struct link_reply *reply)
{
    uint32_t cleaned = 0;
    char name[SL_DIRECTORY_NAME_BYTES];
    lookup->keys[k].count = 0;
    for (uint32_t i = 0; i + 1 < reply->count; i += 2) {
        const struct link_item *who = &reply->items[i], *life = &reply->items[i + 1];
        uint64_t incarnation = 0;
        if (who->nil || life->nil || !directory_name_good(who->text, who->length) ||
            !sl_parse_whole(life->text, life->length, &incarnation)) {
            self->stats.stale_holders++;
            continue;
        }
        memcpy(name, who->text, who->length);
        name[who->length] = '\0';
        if (strcmp(name, self->self.name) == 0) {
            continue;
        }
        const struct sl_directory_member *member = directory_member_find(self, name);
        if (member != NULL && member->incarnation == incarnation) {
            if (lookup->keys[k].count < SL_DIRECTORY_HOLDERS_MAX) {
                lookup->keys[k].members[lookup->keys[k].count++] =
                    (uint16_t)(member - self->members->at);
            }
            continue;
        }
        self->stats.stale_holders++;
        if (member == NULL || member->incarnation < incarnation) {
            self->holder_unknown = true; /* it may have joined just now */
        }
        if (member == NULL && reply->count > 2 * CROWDED && cleaned < CLEAN_MAX) {
            holder_clean(self, lookup->keys[k].id, name);
            cleaned++;
        }
    }
}

bool directory_lookup_replied(struct sl_directory *self, uint32_t arg,
                              const struct link_reply *reply)
{
    struct lookup *lookup = &self->lookups[arg >> 16];
    uint32_t k = arg & 0xffff;
    SL_ASSERT(lookup->used && lookup->left > 0 && k < lookup->count);
    if (reply->type == REDIS_REPLY_ERROR) {
        self->stats.refused++;
    } else if (reply->type == REDIS_REPLY_ARRAY && !reply->odd) {
        holders_read(self, lookup, k, reply);
    } else {
        return false;
    }
    lookup->left--;
    if (lookup->left == 0 && lookup->over) {
        lookup->used = false;
    } else if (lookup->left == 0) {
        directory_lookup_end(self, lookup, SL_OK);
    }
    return true;
}

static struct lookup *lookup_free_slot(struct sl_directory *self)
{
    for (uint32_t i = 0; i < SL_DIRECTORY_LOOKUPS_MAX; i++) {
        if (!self->lookups[i].used) {
            return &self->lookups[i];
        }
    }
    return NULL;
}

sl_err sl_directory_lookup(struct sl_directory *self, const struct sl_directory_lookup *want)
{
    char key[KEY_BYTES];
    if (want->count == 0 || want->count > SL_DIRECTORY_KEYS_MAX) {
        return SL_ERR_INVALID;
    }
    if (self->kind == SL_DIRECTORY_EMBEDDED) {
        return SL_ERR_NOT_FOUND;
    }
    if (self->link.phase != LINK_UP || !self->informed) {
        return SL_ERR_UNREACHABLE;
    }
    if (self->members->count == 0) {
        return SL_ERR_NOT_FOUND;
    }
    struct lookup *lookup = lookup_free_slot(self);
    if (lookup == NULL ||
        !link_has_room(&self->link, want->count, (uint64_t)want->count * LOOKUP_BYTES)) {
        return SL_ERR_LIMIT;
    }
    lookup->used = true;
    lookup->over = false;
    lookup->count = lookup->left = want->count;
    lookup->deadline_ns = want->deadline_ns;
    lookup->cookie = want->cookie;
    self->link.now_ns = SL_MAX(self->link.now_ns, want->now_ns);
    uint32_t slot = (uint32_t)(lookup - self->lookups);
    for (uint32_t k = 0; k < want->count; k++) {
        lookup->keys[k].id = want->ids[k];
        lookup->keys[k].count = 0;
        link_send(&self->link, LINK_WORDS("HGETALL", directory_key_of_id(self, key, want->ids[k])),
                  WHAT_LOOKUP, slot << 16 | k);
    }
    self->stats.lookups++;
    self->flush = true; /* not here: a failed send would call back */
    return SL_OK;
}
