/* tests/sim/sim_redis_store.c - the simulated server's data and commands. */
#include "tests/sim/sim_redis_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_BYTES 4096u

/* ---- entries ---- */

void redis_store_free(struct redis_store *store)
{
    for (uint32_t i = 0; i < store->count; i++) {
        free(store->entries[i].fields);
    }
    free(store->entries);
    *store = (struct redis_store){0};
}

void redis_store_copy(struct redis_store *to, const struct redis_store *from)
{
    redis_store_free(to);
    to->entries = calloc(from->count + 1u, sizeof(*to->entries));
    SIM_CHECK(to->entries != NULL, "out of memory");
    to->count = from->count;
    for (uint32_t i = 0; i < from->count; i++) {
        size_t bytes = from->entries[i].count * sizeof(struct redis_field);
        to->entries[i] = from->entries[i];
        to->entries[i].fields = malloc(bytes + 1);
        SIM_CHECK(to->entries[i].fields != NULL, "out of memory");
        memcpy(to->entries[i].fields, from->entries[i].fields, bytes);
    }
}

static void entry_drop(struct redis_store *store, struct redis_entry *entry)
{
    free(entry->fields);
    *entry = store->entries[--store->count];
    store->entries[store->count] = (struct redis_entry){0};
}

struct redis_entry *redis_entry_find(struct redis_store *store, const char *key, uint64_t now_ns)
{
    for (uint32_t i = 0; i < store->count; i++) {
        struct redis_entry *entry = &store->entries[i];
        if (strcmp(entry->key, key) == 0) {
            if (entry->expires_ns > now_ns) {
                return entry;
            }
            entry_drop(store, entry);
            return NULL;
        }
    }
    return NULL;
}

static struct redis_entry *entry_make(struct redis_store *store, const char *key,
                                      enum redis_kind kind, uint64_t now_ns)
{
    struct redis_entry *entry = redis_entry_find(store, key, now_ns);
    if (entry != NULL) {
        SIM_CHECK(entry->kind == kind, "'%s' is of another kind", key);
        return entry;
    }
    store->entries = realloc(store->entries, (store->count + 1u) * sizeof(*store->entries));
    SIM_CHECK(store->entries != NULL && strlen(key) < REDIS_NAME_BYTES, "no room for '%s'", key);
    entry = &store->entries[store->count++];
    *entry = (struct redis_entry){.kind = kind, .expires_ns = SL_NEVER_NS};
    memcpy(entry->key, key, strlen(key) + 1);
    return entry;
}

const struct redis_field *redis_field_find(const struct redis_entry *entry, const char *name)
{
    for (uint32_t i = 0; entry != NULL && i < entry->count; i++) {
        if (strcmp(entry->fields[i].name, name) == 0) {
            return &entry->fields[i];
        }
    }
    return NULL;
}

/* True: the field is new. */
static bool field_set(struct redis_entry *entry, const char *name, const char *value)
{
    struct redis_field *field = (struct redis_field *)redis_field_find(entry, name);
    bool fresh = field == NULL;
    if (fresh) {
        entry->fields = realloc(entry->fields, (entry->count + 1u) * sizeof(*entry->fields));
        SIM_CHECK(entry->fields != NULL, "out of memory");
        field = &entry->fields[entry->count++];
    }
    SIM_CHECK(strlen(name) < REDIS_NAME_BYTES && strlen(value) < REDIS_VALUE_BYTES, "too long: %s",
              name);
    memcpy(field->name, name, strlen(name) + 1);
    memcpy(field->value, value, strlen(value) + 1);
    return fresh;
}

/* An entry without fields is removed, as in Redis. True: the field existed. */
static bool field_drop(struct redis_store *store, struct redis_entry *entry, const char *name)
{
    struct redis_field *field = (struct redis_field *)redis_field_find(entry, name);
    if (field == NULL) {
        return false;
    }
    *field = entry->fields[--entry->count];
    if (entry->count == 0) {
        entry_drop(store, entry);
    }
    return true;
}

/* ---- answers ---- */

static void answer(struct redis_answer *to, const char *format, ...) SL_PRINTF(2, 3);
static void answer(struct redis_answer *to, const char *format, ...)
{
    if (to->capacity - to->length < ANSWER_BYTES) {
        to->capacity += 2 * ANSWER_BYTES;
        to->at = realloc(to->at, to->capacity);
        SIM_CHECK(to->at != NULL, "out of memory");
    }
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is begun above */
    int length = vsnprintf(to->at + to->length, ANSWER_BYTES, format, arguments);
    va_end(arguments);
    SIM_CHECK(length >= 0 && length < (int)ANSWER_BYTES, "an answer is too long");
    to->length += (size_t)length;
}

static void answer_text(struct redis_answer *to, const char *text)
{
    answer(to, "$%zu\r\n%s\r\n", strlen(text), text);
}

/* ---- commands ---- */

static uint64_t milliseconds(const char *text)
{
    return strtoull(text, NULL, 10) * SL_NS_PER_MS;
}

static bool run_set(struct redis_store *store, const struct redis_command *command,
                    struct redis_answer *to)
{
    bool fresh = redis_entry_find(store, command->words[1], command->now_ns) == NULL;
    struct redis_entry *entry = entry_make(store, command->words[1], REDIS_TEXT, command->now_ns);
    SIM_CHECK(command->count == 5 && strcmp(command->words[3], "PX") == 0, "SET without PX");
    (void)field_set(entry, "", command->words[2]);
    entry->expires_ns = command->now_ns + milliseconds(command->words[4]);
    answer(to, "+OK\r\n");
    return fresh;
}

/* Runs the directory's only script (runtime/net/directory/directory.c). True: it is now a SET. */
static bool script_sets(struct redis_store *store, struct redis_command *command,
                        struct redis_answer *to)
{
    const char *const *words = command->words;
    const struct redis_entry *entry = redis_entry_find(store, words[3], command->now_ns);
    char incarnation[32] = "", control[REDIS_VALUE_BYTES] = "";
    if (entry != NULL && strcmp(entry->fields[0].value, words[5]) != 0) {
        const char *record = entry->fields[0].value;
        SIM_CHECK(sscanf(record, "%*s %31s %319s", incarnation, control) == 2, "no record: %s",
                  record);
        if (strcmp(incarnation, words[7]) != 0 && strcmp(control, words[8]) != 0) {
            answer(to, "$%zu\r\nR%s\r\n", strlen(record) + 1, record);
            return false;
        }
    }
    *command = (struct redis_command){.words = {"SET", words[3], words[5], "PX", words[6]},
                                      .count = 5,
                                      .now_ns = command->now_ns};
    return true;
}

static void run_get(struct redis_store *store, const struct redis_command *command,
                    struct redis_answer *to)
{
    const struct redis_entry *entry = redis_entry_find(store, command->words[1], command->now_ns);
    if (entry == NULL) {
        answer(to, "$-1\r\n");
    } else {
        answer_text(to, entry->fields[0].value);
    }
}

static void run_all(struct redis_store *store, const struct redis_command *command, bool values,
                    struct redis_answer *to)
{
    const struct redis_entry *entry = redis_entry_find(store, command->words[1], command->now_ns);
    uint32_t count = entry == NULL ? 0 : entry->count;
    answer(to, "*%u\r\n", values ? 2 * count : count);
    for (uint32_t i = 0; i < count; i++) {
        answer_text(to, entry->fields[i].name);
        if (values) {
            answer_text(to, entry->fields[i].value);
        }
    }
}

static bool is(const struct redis_command *command, const char *word, uint32_t count)
{
    return command->count == count && strcmp(command->words[0], word) == 0;
}

bool redis_command_run(struct redis_store *store, struct redis_command *command,
                       struct redis_answer *to)
{
    if (is(command, "EVAL", 9) && !script_sets(store, command, to)) {
        return false;
    }
    const char *const *words = command->words;
    uint64_t now_ns = command->now_ns;
    if (is(command, "PING", 1)) {
        answer(to, "+PONG\r\n");
    } else if (is(command, "SET", 5)) {
        return run_set(store, command, to);
    } else if (is(command, "GET", 2)) {
        run_get(store, command, to);
    } else if (is(command, "DEL", 2)) {
        struct redis_entry *entry = redis_entry_find(store, words[1], now_ns);
        answer(to, ":%d\r\n", entry != NULL);
        if (entry != NULL) {
            entry_drop(store, entry);
        }
    } else if (is(command, "PEXPIRE", 3)) {
        struct redis_entry *entry = redis_entry_find(store, words[1], now_ns);
        answer(to, ":%d\r\n", entry != NULL);
        if (entry != NULL) {
            entry->expires_ns = now_ns + milliseconds(words[2]);
        }
    } else if (is(command, "HSET", 4)) {
        struct redis_entry *entry = entry_make(store, words[1], REDIS_HASH, now_ns);
        answer(to, ":%d\r\n", field_set(entry, words[2], words[3]));
    } else if (is(command, "SADD", 3)) {
        struct redis_entry *entry = entry_make(store, words[1], REDIS_SET, now_ns);
        answer(to, ":%d\r\n", field_set(entry, words[2], ""));
    } else if (is(command, "HDEL", 3) || is(command, "SREM", 3)) {
        struct redis_entry *entry = redis_entry_find(store, words[1], now_ns);
        answer(to, ":%d\r\n", field_drop(store, entry, words[2]));
    } else if (is(command, "HGETALL", 2)) {
        run_all(store, command, true, to);
    } else if (is(command, "SMEMBERS", 2)) {
        run_all(store, command, false, to);
    } else {
        sim_fail("the directory's server knows no '%s' of %u words", words[0], command->count);
    }
    return false;
}
