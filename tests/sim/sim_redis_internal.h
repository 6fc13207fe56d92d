/* tests/sim/sim_redis_internal.h - declarations shared by the server's store and its streams. */
#ifndef SL_TEST_SIM_REDIS_INTERNAL_H
#define SL_TEST_SIM_REDIS_INTERNAL_H

#include "tests/sim/sim_internal.h"
#include "tests/sim/sim_redis.h"

#define REDIS_NAME_BYTES  160u
#define REDIS_VALUE_BYTES 320u
#define REDIS_WORDS_MAX   9u

struct redis_field {
    char name[REDIS_NAME_BYTES], value[REDIS_VALUE_BYTES];
};
enum redis_kind { REDIS_TEXT, REDIS_HASH, REDIS_SET };
struct redis_entry {
    char key[REDIS_NAME_BYTES];
    enum redis_kind kind;
    uint64_t expires_ns;
    struct redis_field *fields; /* a plain text is the value of a field without a name */
    uint32_t count;
};
struct redis_store {
    struct redis_entry *entries;
    uint32_t count;
};
void redis_store_free(struct redis_store *store);
void redis_store_copy(struct redis_store *to, const struct redis_store *from);
/* NULL: no such entry, or it has expired. */
struct redis_entry *redis_entry_find(struct redis_store *store, const char *key, uint64_t now_ns);
const struct redis_field *redis_field_find(const struct redis_entry *entry, const char *name);

/* A command as its arguments, and the buffer for its answer. */
struct redis_command {
    const char *words[REDIS_WORDS_MAX];
    uint32_t count;
    uint64_t now_ns;
};
struct redis_answer {
    char *at; /* owned, grows */
    size_t length, capacity;
};
/* True: a text was set where none existed. A script becomes the command that it results in. */
bool redis_command_run(struct redis_store *store, struct redis_command *command,
                       struct redis_answer *answer);

#endif
