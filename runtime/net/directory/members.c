/* runtime/net/directory/members.c - the table of nodes: read into a new table that replaces it. */
#include "runtime/base/sl_parse.h"
#include "runtime/net/directory/state.h"

#include <stdlib.h>
#include <string.h>

static int member_compare(const void *a, const void *b)
{
    const struct sl_directory_member *left = a, *right = b;
    return strcmp(left->name, right->name);
}

const struct sl_directory_member *directory_member_find(const struct sl_directory *self,
                                                        const char *name)
{
    struct sl_directory_member want = {0};
    (void)snprintf(want.name, sizeof(want.name), "%s", name);
    return bsearch(&want, self->members->at, self->members->count, sizeof(want), member_compare);
}

static bool names_have(struct sl_directory *self, const struct link_item *item)
{
    for (uint32_t i = 0; i < self->name_count; i++) {
        if (strlen(self->names[i]) == item->length &&
            memcmp(self->names[i], item->text, item->length) == 0) {
            return true;
        }
    }
    return false;
}

static void members_become(struct sl_directory *self)
{
    self->informed = true;
    struct member_table *next = self->next;
    qsort(next->at, next->count, sizeof(next->at[0]), member_compare);
    if (next->count == self->members->count &&
        memcmp(next->at, self->members->at, next->count * sizeof(next->at[0])) == 0) {
        return;
    }
    self->next = self->members;
    self->members = next;
    for (uint32_t i = 0; i < SL_DIRECTORY_LOOKUPS_MAX; i++) { /* with indexes of the old table */
        for (uint32_t k = 0; self->lookups[i].used && k < self->lookups[i].count; k++) {
            self->lookups[i].keys[k].count = 0;
        }
    }
    if (self->events.members != NULL) {
        self->events.members(self->events.context);
    }
}

/* Handles the list of names by requesting their records. */
bool directory_names_replied(struct sl_directory *self, const struct link_reply *reply)
{
    char key[KEY_BYTES];
    self->refreshing = false;
    if (reply->type == REDIS_REPLY_ERROR) {
        self->stats.refused++;
        return true;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->odd) {
        return false;
    }
    self->name_count = 0;
    for (uint32_t i = 0; i < reply->count && self->name_count < SL_DIRECTORY_MEMBERS_MAX; i++) {
        const struct link_item *item = &reply->items[i];
        bool mine = strlen(self->self.name) == item->length &&
                    memcmp(item->text, self->self.name, item->length) == 0;
        if (item->nil || mine || !directory_name_good(item->text, item->length) ||
            names_have(self, item)) {
            continue;
        }
        memcpy(self->names[self->name_count], item->text, item->length);
        self->names[self->name_count++][item->length] = '\0';
    }
    if (self->name_count == 0) {
        self->next->count = 0;
        members_become(self);
        return true;
    }
    if (!link_has_room(&self->link, self->name_count, (uint64_t)self->name_count * COMMAND_BYTES)) {
        return true; /* retried after a third of node_ttl */
    }
    for (uint32_t i = 0; i < self->name_count; i++) {
        link_send(&self->link, LINK_WORDS("GET", directory_key_of(self, key, "n:", self->names[i])),
                  WHAT_MEMBER, i);
    }
    self->next->count = 0;
    self->refreshing = true;
    return true;
}

/* Reads one word of a record. */
static bool record_word(const char **at, const char *end, char *out, size_t out_bytes)
{
    const char *space = memchr(*at, ' ', (size_t)(end - *at));
    size_t length = (size_t)((space == NULL ? end : space) - *at);
    if (length == 0 || length >= out_bytes) {
        return false;
    }
    memcpy(out, *at, length);
    out[length] = '\0';
    *at = space == NULL ? end : space + 1;
    return true;
}

bool directory_record_read(const char *name, const struct link_item *item,
                           struct sl_directory_member *out)
{
    char version[4], incarnation[24];
    const char *at = item->text, *end = item->text + item->length;
    *out = (struct sl_directory_member){0};
    (void)snprintf(out->name, sizeof(out->name), "%s", name);
    if (!record_word(&at, end, version, sizeof(version)) || strcmp(version, RECORD_VERSION) != 0 ||
        !record_word(&at, end, incarnation, sizeof(incarnation)) ||
        !sl_parse_within(incarnation, 1, UINT64_MAX, &out->incarnation) ||
        !record_word(&at, end, out->control, sizeof(out->control)) ||
        !record_word(&at, end, out->fabric, sizeof(out->fabric)) || at != end) {
        return false;
    }
    char *const addresses[] = {out->control, out->fabric};
    for (uint32_t i = 0; i < SL_COUNT(addresses); i++) {
        size_t length = strlen(addresses[i]);
        if (!directory_address_good(addresses[i], length)) {
            return false;
        }
        if (strcmp(addresses[i], "-") == 0) {
            memset(addresses[i], 0,
                   SL_DIRECTORY_ADDRESS_BYTES); /* all: records are compared whole */
        }
    }
    return true;
}

/* Handles the record of self->names[at]; the last one completes the table. */
bool directory_member_replied(struct sl_directory *self, uint32_t at,
                              const struct link_reply *reply)
{
    char key[KEY_BYTES];
    const char *name = self->names[at];
    struct sl_directory_member *to = &self->next->at[self->next->count];
    switch (reply->type) {
    case REDIS_REPLY_STRING:
        if (reply->count == 1 && directory_record_read(name, &reply->items[0], to)) {
            self->next->count++;
        }
        break;
    case REDIS_REPLY_NIL:
        if (link_has_room(&self->link, 1, COMMAND_BYTES)) {
            /* It expired; if the node returns, it adds its name again. */
            link_send(&self->link,
                      LINK_WORDS("SREM", directory_key_of(self, key, "nodes", ""), name),
                      WHAT_OTHER, 0);
        }
        break;
    case REDIS_REPLY_ERROR:
        self->stats.refused++;
        break;
    default:
        return false;
    }
    if (at + 1 == self->name_count) {
        self->refreshing = false;
        members_become(self);
    }
    return true;
}
