/* runtime/net/directory/directory.c - commands to the directory's server and the meaning of its
 * replies. With `embedded` there is no server. */
#include "runtime/net/directory/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PUBLISH_WINDOW 512u /* unanswered publications at most, since a lookup waits for them */

void sl_directory_options_init(struct sl_directory_options *options)
{
    *options = (struct sl_directory_options){
        .kind = SL_DIRECTORY_EMBEDDED,
        .cluster = "default",
        .node_ttl_ns = 10 * SL_NS_PER_S,
        .key_ttl_ns = 600 * SL_NS_PER_S,
        .timeout_ns = 200 * SL_NS_PER_MS,
        .backoff_min_ns = 50 * SL_NS_PER_MS,
        .backoff_max_ns = 5 * SL_NS_PER_S,
        .seed = 1,
    };
}

/* ---- commands ---- */

const char *directory_key_of(const struct sl_directory *self, char out[KEY_BYTES], const char *kind,
                             const char *name)
{
    int length = snprintf(out, KEY_BYTES, "%s%s%s", self->prefix, kind, name);
    SL_ASSERT(length > 0 && length < (int)KEY_BYTES);
    return out;
}

const char *directory_key_of_id(const struct sl_directory *self, char out[KEY_BYTES], uint64_t id)
{
    char text[20];
    (void)snprintf(text, sizeof(text), "%016" PRIx64, id);
    return directory_key_of(self, out, "k:", text);
}

#define NUMBER_BYTES 24u
static const char *number(char out[NUMBER_BYTES], uint64_t value)
{
    (void)snprintf(out, NUMBER_BYTES, "%" PRIu64, value);
    return out;
}

static void publish_send(struct sl_directory *self, const struct tell *tell)
{
    char key[KEY_BYTES], life[NUMBER_BYTES], ttl[NUMBER_BYTES];
    const char *me = self->self.name;
    (void)directory_key_of_id(self, key, tell->id);
    if (!tell->there) {
        link_send(&self->link, LINK_WORDS("HDEL", key, me), WHAT_WITHDRAW, 0);
        return;
    }
    link_send(&self->link, LINK_WORDS("HSET", key, me, number(life, self->self.incarnation)),
              WHAT_PUBLISH, 0);
    link_send(&self->link, LINK_WORDS("PEXPIRE", key, number(ttl, self->key_ttl_ns / SL_NS_PER_MS)),
              WHAT_OTHER, 0);
}

/* Sends queued keys up to the window. Holders are identified by name, so a second node with our
 * name must not publish: it would overwrite the entries of the first one. */
static void publish_pump(struct sl_directory *self)
{
    while (self->own_known && !self->refused && self->link.phase == LINK_UP &&
           self->tell_count > 0 && self->unconfirmed_count < PUBLISH_WINDOW &&
           link_has_room(&self->link, 2, COMMAND_BYTES)) {
        struct tell tell = self->tells[self->tell_head];
        self->tell_head = (self->tell_head + 1) % SL_DIRECTORY_QUEUE_MAX;
        self->tell_count--;
        self->unconfirmed_count++;
        publish_send(self, &tell);
    }
}

static void record_write(const struct sl_directory_member *me, char record[RECORD_BYTES])
{
    (void)snprintf(record, RECORD_BYTES, RECORD_VERSION " %" PRIu64 " %s %s", me->incarnation,
                   me->control[0] == '\0' ? "-" : me->control,
                   me->fabric[0] == '\0' ? "-" : me->fabric);
}

/* Sets our record (KEYS[1]) unless another node's record exists. It is another's if text,
 * incarnation (ARGV[3]) and, before ours was first accepted, address (ARGV[4]) differ: the same
 * address is of our ended process. Both nodes are then informed: "R..." is the record of the first
 * node; "T..." that of the refused one, from the note (KEYS[2]) that it leaves. */
#define RECORD_SCRIPT                                                        \
    "local r=redis.call('GET',KEYS[1]) "                                     \
    "if r and r~=ARGV[1] and string.match(r,'^%S+ (%S+)')~=ARGV[3] and "     \
    "string.match(r,'^%S+ %S+ (%S+)')~=ARGV[4] then "                        \
    "redis.call('SET',KEYS[2],ARGV[1],'PX',ARGV[2]) return 'R'..r end "      \
    "redis.call('SET',KEYS[1],ARGV[1],'PX',ARGV[2]) "                        \
    "local t=redis.call('GET',KEYS[2]) "                                     \
    "if t and string.match(t,'^%S+ (%S+)')~=ARGV[3] then return 'T'..t end " \
    "return redis.status_reply('OK')"

/* Sets our record under this kind of key unconditionally. "n:": for a server that allows no script
 * (ACL, rename-command). "t:": the note of the script, while our record is held. */
static void record_set(struct sl_directory *self, const char *kind, uint32_t what, uint32_t arg)
{
    char key[KEY_BYTES], ttl[NUMBER_BYTES], record[RECORD_BYTES];
    record_write(&self->self, record);
    link_send(&self->link,
              LINK_WORDS("SET", directory_key_of(self, key, kind, self->self.name), record, "PX",
                         number(ttl, self->node_ttl_ns / SL_NS_PER_MS)),
              what, arg);
}

static void record_send(struct sl_directory *self)
{
    char key[KEY_BYTES], note[KEY_BYTES], ttl[NUMBER_BYTES], life[NUMBER_BYTES];
    char record[RECORD_BYTES];
    const struct sl_directory_member *me = &self->self;
    link_send(&self->link, LINK_WORDS("SADD", directory_key_of(self, key, "nodes", ""), me->name),
              WHAT_OTHER, 0);
    if (self->scriptless) {
        record_set(self, "n:", WHAT_RECORD, RECORD_PLAIN);
        return;
    }
    record_write(me, record);
    link_send(&self->link,
              LINK_WORDS("EVAL", RECORD_SCRIPT, "2", directory_key_of(self, key, "n:", me->name),
                         directory_key_of(self, note, "t:", me->name), record,
                         number(ttl, self->node_ttl_ns / SL_NS_PER_MS),
                         number(life, me->incarnation), self->recorded ? "" : me->control),
              WHAT_RECORD, 0);
}

/* Renews our record and requests the other nodes. */
static void refresh_send(struct sl_directory *self, uint64_t now_ns)
{
    char key[KEY_BYTES];
    if (!link_has_room(&self->link, 3, 6 * COMMAND_BYTES)) {
        return; /* retried in the next step */
    }
    if (self->announced && !self->held) {
        record_send(self);
    } else if (self->announced && !self->own_asked) {
        link_send(&self->link,
                  LINK_WORDS("GET", directory_key_of(self, key, "n:", self->self.name)), WHAT_OWN,
                  0);
        self->own_asked = true;
    }
    if (!self->refreshing) {
        link_send(&self->link, LINK_WORDS("SMEMBERS", directory_key_of(self, key, "nodes", "")),
                  WHAT_NAMES, 0);
        self->refreshing = true;
    }
    self->refreshed_ns = now_ns;
    self->refresh_ns = now_ns + self->node_ttl_ns / 3;
}

/* ---- callbacks of the link ---- */

static bool plain_replied(struct sl_directory *self, uint32_t what, const struct link_reply *reply)
{
    bool counted = what == WHAT_PUBLISH || what == WHAT_WITHDRAW;
    bool error = reply->type == REDIS_REPLY_ERROR;
    if (counted) {
        SL_ASSERT(self->unconfirmed_count > 0);
        self->unconfirmed_count--;
        self->stats.publications_answered++;
    }
    self->stats.refused += error;
    if (error) {
        return true;
    }
    self->stats.published += what == WHAT_PUBLISH;
    self->stats.withdrawn += what == WHAT_WITHDRAW;
    return reply->type == REDIS_REPLY_INTEGER;
}

static void twin_write(struct sl_directory *self, const char *first, const char *refused)
{
    (void)snprintf(
        self->twin, sizeof(self->twin),
        "two nodes of the directory are named '%.31s': the first, at %.60s, is kept; the "
        "one at %.60s is refused",
        self->self.name, first, refused);
}

/* Another node's record has our name. If that node has ended, its record expires within node_ttl,
 * so nothing is reported before that. */
static void record_refused(struct sl_directory *self, const struct sl_directory_member *first)
{
    uint64_t now_ns = self->link.now_ns;
    self->refused_ns = self->refused ? self->refused_ns : now_ns;
    self->refused = true;
    self->own_asked = false; /* query it again */
    if (now_ns - self->refused_ns > self->node_ttl_ns) {
        twin_write(self, first->control, self->self.control);
    }
}

/* Our record was accepted. other: another node with our name; NULL: none. */
static void record_taken(struct sl_directory *self, const struct sl_directory_member *other)
{
    uint64_t now_ns = self->link.now_ns;
    uint64_t lapsed_ns = self->record_at_ns == 0 ? 0 : now_ns - self->record_at_ns;
    bool was_refused = self->refused;
    self->record_at_ns = now_ns;
    self->recorded = self->own_known = true;
    self->refused = false;
    self->twin[0] = '\0';
    if (other != NULL) {
        twin_write(self, self->self.control, other->control);
    }
    if ((was_refused || lapsed_ns > self->node_ttl_ns) && self->events.link != NULL) {
        /* This process did not run for so long that others may have removed its entries; or it
         * could not publish before. */
        self->events.link(self->events.context, true, NULL);
    }
}

static bool record_replied(struct sl_directory *self, uint32_t way, const struct link_reply *reply)
{
    struct sl_directory_member other;
    if (reply->type == REDIS_REPLY_ERROR) {
        self->stats.refused++;
        if (way != RECORD_PLAIN && link_has_room(&self->link, 1, COMMAND_BYTES)) {
            record_set(self, "n:", WHAT_RECORD, RECORD_PLAIN);
        }
        return true;
    }
    if (reply->type == REDIS_REPLY_STATUS) {
        self->scriptless = way == RECORD_PLAIN; /* not if both commands fail */
        record_taken(self, NULL);
        return true;
    }
    if (reply->type != REDIS_REPLY_STRING || reply->count != 1 || reply->items[0].length < 2) {
        return false;
    }
    struct link_item item = reply->items[0];
    bool refused = item.text[0] == 'R';
    item.text++;
    item.length--;
    if (!directory_record_read(self->self.name, &item, &other)) {
        (void)snprintf(other.control, sizeof(other.control), "?");
    }
    if (refused) {
        self->own_known = true;
        record_refused(self, &other);
    } else {
        record_taken(self, &other);
    }
    return true;
}

/* If the server still has our record of this incarnation, it lost nothing: the record is kept. */
static bool own_replied(struct sl_directory *self, const struct link_reply *reply)
{
    char record[RECORD_BYTES];
    struct sl_directory_member other;
    record_write(&self->self, record);
    bool there = reply->type == REDIS_REPLY_STRING && reply->count == 1;
    bool ours = there && reply->items[0].length == strlen(record) &&
                memcmp(reply->items[0].text, record, strlen(record)) == 0;
    if (ours) {
        sl_directory_hold(self, false);
    }
    if (there && !ours && directory_record_read(self->self.name, &reply->items[0], &other) &&
        other.incarnation != self->self.incarnation &&
        (self->recorded || strcmp(other.control, self->self.control) != 0)) {
        record_refused(self, &other);
        record_set(self, "t:", WHAT_NOTE, 0);
    } else if (self->refused && !ours) { /* the other record expired: publish everything now */
        self->refused = false;
        self->twin[0] = '\0';
        self->events.link(self->events.context, true, NULL);
    }
    self->own_known = true;
    self->stats.refused += reply->type == REDIS_REPLY_ERROR;
    return reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_NIL ||
           reply->type == REDIS_REPLY_ERROR;
}

static bool link_replied(void *context, uint32_t what, uint32_t arg, const struct link_reply *reply)
{
    struct sl_directory *self = context;
    switch (what) {
    case WHAT_LOOKUP:
        return directory_lookup_replied(self, arg, reply);
    case WHAT_NAMES:
        return directory_names_replied(self, reply);
    case WHAT_MEMBER:
        return directory_member_replied(self, arg, reply);
    case WHAT_RECORD:
        return record_replied(self, arg, reply);
    case WHAT_OWN:
        return own_replied(self, reply);
    case WHAT_NOTE:
        return reply->type == REDIS_REPLY_STATUS || reply->type == REDIS_REPLY_ERROR;
    default:
        return plain_replied(self, what, reply);
    }
}

static void link_is_up(void *context)
{
    struct sl_directory *self = context;
    self->stats.up = true;
    self->informed = self->own_asked = self->own_known = self->scriptless = false;
    self->refresh_ns = 0;
    self->record_at_ns = 0;
    self->last_failure = SL_OK;
    if (self->events.link != NULL) {
        self->events.link(self->events.context, true, NULL);
    }
}

static void link_is_lost(void *context, bool was_up, const struct sl_error *why)
{
    struct sl_directory *self = context;
    bool news = was_up || why->code != self->last_failure;
    self->stats.up = false;
    self->stats.publications_lost += self->tell_count + self->unconfirmed_count;
    self->tell_head = self->tell_count = self->unconfirmed_count = 0;
    self->refreshing = false;
    self->last_failure = why->code;
    for (uint32_t i = 0; i < SL_DIRECTORY_LOOKUPS_MAX; i++) {
        struct lookup *lookup = &self->lookups[i];
        lookup->left = 0; /* no reply will arrive */
        if (lookup->used && lookup->over) {
            lookup->used = false;
        } else if (lookup->used) {
            directory_lookup_end(self, lookup, SL_ERR_UNREACHABLE);
        }
    }
    if (news && self->events.link != NULL) {
        self->events.link(self->events.context, false, why);
    }
}

/* ---- life ---- */

static sl_err redis_open(struct sl_directory *self, const struct sl_directory_options *options,
                         struct sl_error *why)
{
    struct directory_link *link = &self->link;
    sl_err err = directory_place_from(options->url == NULL ? "" : options->url, &link->place, why);
    if (err != SL_OK) {
        return err;
    }
    if (options->password != NULL && options->password[0] != '\0') {
        if (strlen(options->password) >= DIRECTORY_SECRET_BYTES) {
            return sl_fail(why, SL_ERR_CONFIG, "directory: the password has more than %u bytes",
                           DIRECTORY_SECRET_BYTES - 1);
        }
        (void)snprintf(link->place.password, DIRECTORY_SECRET_BYTES, "%s", options->password);
    }
    self->members = calloc(1, sizeof(*self->members));
    self->next = calloc(1, sizeof(*self->next));
    self->names = calloc(SL_DIRECTORY_MEMBERS_MAX, sizeof(*self->names));
    self->tells = calloc(SL_DIRECTORY_QUEUE_MAX, sizeof(*self->tells));
    self->lookups = calloc(SL_DIRECTORY_LOOKUPS_MAX, sizeof(*self->lookups));
    self->found = calloc(SL_DIRECTORY_KEYS_MAX, sizeof(*self->found));
    if (self->members == NULL || self->next == NULL || self->names == NULL || self->tells == NULL ||
        self->lookups == NULL || self->found == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "tables of the directory");
    }
    link->timeout_ns = options->timeout_ns;
    link->backoff_min_ns = options->backoff_min_ns;
    link->backoff_max_ns = options->backoff_max_ns;
    link->random = options->seed | 1;
    link->context = self;
    link->replied = link_replied;
    link->lost = link_is_lost;
    link->up = link_is_up;
    return link_init(link, why);
}

sl_err sl_directory_open(const struct sl_directory_options *options, struct sl_directory **out,
                         struct sl_error *why)
{
    const char *cluster = options->cluster == NULL ? "" : options->cluster;
    if (!directory_name_good(cluster, strlen(cluster))) {
        return sl_fail(why, SL_ERR_CONFIG,
                       "directory_name: '%.64s' is not 1 to 63 of letters, digits, '.', '_', '-'",
                       cluster);
    }
    if (options->node_ttl_ns < SL_NS_PER_MS || options->key_ttl_ns < SL_NS_PER_MS ||
        options->timeout_ns == 0 || options->backoff_min_ns == 0 ||
        options->backoff_max_ns < options->backoff_min_ns || options->events.found == NULL) {
        return sl_fail(why, SL_ERR_CONFIG, "directory: a time is 0, or no callback for results");
    }
    struct sl_directory *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "directory");
    }
    self->link.epoll = self->link.fd = -1;
    self->kind = options->kind;
    self->events = options->events;
    self->node_ttl_ns = options->node_ttl_ns;
    self->key_ttl_ns = options->key_ttl_ns;
    int length = snprintf(self->prefix, sizeof(self->prefix), "sluice:%s:", cluster);
    SL_ASSERT(length > 0 && length < (int)PREFIX_BYTES);
    sl_err err = self->kind == SL_DIRECTORY_REDIS ? redis_open(self, options, why) : SL_OK;
    if (err != SL_OK) {
        sl_directory_close(&self);
        return err;
    }
    *out = self;
    return SL_OK;
}

void sl_directory_close(struct sl_directory **directory)
{
    if (directory == NULL || *directory == NULL) {
        return;
    }
    struct sl_directory *self = *directory;
    if (self->kind == SL_DIRECTORY_REDIS) {
        link_fini(&self->link);
        explicit_bzero(&self->link.place, sizeof(self->link.place));
    }
    free(self->members);
    free(self->next);
    free(self->names);
    free(self->tells);
    free(self->lookups);
    free(self->found);
    free(self);
    *directory = NULL;
}

int sl_directory_fd(const struct sl_directory *self)
{
    return self->kind == SL_DIRECTORY_REDIS ? self->link.epoll : -1;
}

void sl_directory_step(struct sl_directory *self, uint64_t now_ns)
{
    if (self->kind != SL_DIRECTORY_REDIS) {
        return;
    }
    link_step(&self->link, now_ns);
    directory_lookups_expire(self, now_ns);
    if (self->link.phase != LINK_UP) {
        return;
    }
    if (self->holder_unknown) { /* refresh soon, but not for every stale holder */
        self->holder_unknown = false;
        self->refresh_ns = SL_MIN(self->refresh_ns, self->refreshed_ns + self->node_ttl_ns / 30);
    }
    if (now_ns >= self->refresh_ns) {
        refresh_send(self, now_ns);
    }
    publish_pump(self);
    self->flush = false;
    link_flush(&self->link);
}

uint64_t sl_directory_wake_at(const struct sl_directory *self)
{
    if (self->kind != SL_DIRECTORY_REDIS) {
        return SL_NEVER_NS;
    }
    uint64_t at_ns = link_wake_at(&self->link);
    if (self->link.phase != LINK_UP) {
        return at_ns;
    }
    if (self->flush || (self->own_known && !self->refused && self->tell_count > 0 &&
                        self->unconfirmed_count < PUBLISH_WINDOW)) {
        return 0;
    }
    for (uint32_t i = 0; i < SL_DIRECTORY_LOOKUPS_MAX; i++) {
        const struct lookup *lookup = &self->lookups[i];
        at_ns = lookup->used && !lookup->over ? SL_MIN(at_ns, lookup->deadline_ns) : at_ns;
    }
    return SL_MIN(at_ns, self->refresh_ns);
}

bool sl_directory_up(const struct sl_directory *self)
{
    return self->kind == SL_DIRECTORY_EMBEDDED || self->link.phase == LINK_UP;
}

/* ---- this node, other nodes ---- */

sl_err sl_directory_member_check(const struct sl_directory_member *member, struct sl_error *why)
{
    if (memchr(member->name, '\0', sizeof(member->name)) == NULL ||
        !directory_name_good(member->name, strlen(member->name))) {
        return sl_fail(why, SL_ERR_INVALID,
                       "node name '%.63s' is not 1 to 63 of letters, digits, '.', '_', '-'",
                       member->name);
    }
    const char *const addresses[] = {member->control, member->fabric};
    for (uint32_t i = 0; i < SL_COUNT(addresses); i++) {
        if (memchr(addresses[i], '\0', SL_DIRECTORY_ADDRESS_BYTES) == NULL ||
            !directory_address_good(addresses[i], strlen(addresses[i]))) {
            return sl_fail(why, SL_ERR_INVALID, "the %s address has a space or no end",
                           i == 0 ? "control" : "fabric");
        }
    }
    if (member->incarnation == 0) {
        return sl_fail(why, SL_ERR_INVALID, "incarnation 0");
    }
    return SL_OK;
}

sl_err sl_directory_announce(struct sl_directory *self, const struct sl_directory_member *member,
                             struct sl_error *why)
{
    sl_err err = sl_directory_member_check(member, why);
    if (err != SL_OK) {
        return err;
    }
    self->self = *member;
    self->announced = true;
    self->refresh_ns = 0;
    return SL_OK;
}

void sl_directory_hold(struct sl_directory *self, bool held)
{
    if (self->held && !held) {
        self->refresh_ns = 0;
        self->record_at_ns = 0; /* its absence was intended */
    }
    self->held = held;
}

void sl_directory_leave(struct sl_directory *self)
{
    char key[KEY_BYTES];
    if (self->kind == SL_DIRECTORY_REDIS && self->announced && self->recorded && !self->refused &&
        self->link.phase == LINK_UP && link_has_room(&self->link, 1, COMMAND_BYTES)) {
        link_send(&self->link,
                  LINK_WORDS("DEL", directory_key_of(self, key, "n:", self->self.name)), WHAT_OTHER,
                  0);
        link_flush(&self->link);
    }
    self->announced = false;
}

bool sl_directory_publish(struct sl_directory *self, uint64_t id, bool there)
{
    if (self->kind == SL_DIRECTORY_EMBEDDED) {
        return true; /* no other node exists */
    }
    if (!self->announced || self->refused || self->link.phase != LINK_UP ||
        self->tell_count == SL_DIRECTORY_QUEUE_MAX) {
        return false;
    }
    uint32_t at = (self->tell_head + self->tell_count) % SL_DIRECTORY_QUEUE_MAX;
    self->tells[at] = (struct tell){.id = id, .there = there};
    self->tell_count++;
    self->stats.accepted++;
    return true;
}

void sl_directory_key_ttl(struct sl_directory *self, uint64_t key_ttl_ns)
{
    self->key_ttl_ns = SL_MAX(key_ttl_ns, SL_NS_PER_MS);
}

uint32_t sl_directory_members(const struct sl_directory *self,
                              const struct sl_directory_member **out)
{
    *out = self->members == NULL ? NULL : self->members->at;
    return self->members == NULL ? 0 : self->members->count;
}

const char *sl_directory_twin(const struct sl_directory *self)
{
    return self->twin;
}

void sl_directory_stats(const struct sl_directory *self, struct sl_directory_stats *out)
{
    *out = self->stats;
    out->links_lost = self->link.lost_count;
    out->bad_replies = self->link.bad_replies;
    out->waiting = self->tell_count + self->unconfirmed_count;
}
