/* tests/sim/sim_join_mutants.c - see the header. The linker leads calls between files here (--wrap);
 * without a mutant they go on as they were. */
#include "tests/sim/sim_join_mutants.h"

#include "tests/sim/sim.h"
#include "tests/sim/sim_process.h"

#include <string.h>

#define JOINED_MAX 256u

enum mutant {
    MUTANT_NONE,
    MAC_ANY,
    CHALLENGE_SAME,
    SYNC_NOTHING,
    LOCK_NOTHING,
    PLACE_KEPT,
    JOINED_ONCE,
    ROOM_NEVER,
    MUTANTS
};
static const struct sim_mutant mutants[MUTANTS] = {
    [MAC_ANY] = {7, "any mac fits"},
    [CHALLENGE_SAME] = {7, "challenges are always the same"},
    [SYNC_NOTHING] = {4, "what a host keeps is not synced"},
    [LOCK_NOTHING] = {5, "two joins at once change the table together"},
    [PLACE_KEPT] = {2, "a name that is known keeps its first key and address"},
    [JOINED_ONCE] = {2, "a host that has joined never joins again"},
    [ROOM_NEVER] = {6, "names that are not heard keep their place"},
};
static enum mutant mutant; /* of this process */

void sim_join_mutants_init(void)
{
    mutant = (enum mutant)sim_mutant_number(MUTANTS);
    sim_chance_same = mutant == CHALLENGE_SAME;
    sim_files_sync_nothing = mutant == SYNC_NOTHING;
    sim_locks_lock_nothing = mutant == LOCK_NOTHING;
}

int sim_join_mutants_main(const struct sim_seeds *seeds)
{
    return sim_mutants_find(seeds, NULL, mutants, MUTANTS);
}

#define REAL(name) __real_##name
/* The linker's names. NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

int REAL(CRYPTO_memcmp)(const void *a, const void *b, size_t length);
int __wrap_CRYPTO_memcmp(const void *a, const void *b, size_t length);
int __wrap_CRYPTO_memcmp(const void *a, const void *b, size_t length)
{
    return mutant == MAC_ANY ? 0 : REAL(CRYPTO_memcmp)(a, b, length);
}

sl_err REAL(mc_join_ask)(const struct mc_join *join, char local_ip[64], bool *changed,
                         struct sl_error *why);
sl_err __wrap_mc_join_ask(const struct mc_join *join, char local_ip[64], bool *changed,
                          struct sl_error *why);
sl_err __wrap_mc_join_ask(const struct mc_join *join, char local_ip[64], bool *changed,
                          struct sl_error *why)
{
    static const struct mc_members *joined[JOINED_MAX]; /* lives */
    uint32_t place = 0;
    *changed = false;
    while (place < JOINED_MAX && joined[place] != NULL && joined[place] != join->members) {
        place++;
    }
    if (mutant == JOINED_ONCE && place < JOINED_MAX && joined[place] != NULL) {
        return SL_OK;
    }
    struct join_try tried = join_begins();
    sl_err err = REAL(mc_join_ask)(join, local_ip, changed, why);
    join_asked(join, tried, err);
    if (err == SL_OK && place < JOINED_MAX) {
        joined[place] = join->members;
    }
    return err;
}

sl_err REAL(mc_members_add)(struct mc_members *members, const struct mc_member *member,
                            bool *changed, struct sl_error *why);
sl_err __wrap_mc_members_add(struct mc_members *members, const struct mc_member *member,
                             bool *changed, struct sl_error *why);
sl_err __wrap_mc_members_add(struct mc_members *members, const struct mc_member *member,
                             bool *changed, struct sl_error *why)
{
    struct mc_member known[MC_MEMBERS_MAX];
    uint32_t count = mutant == PLACE_KEPT ? mc_members_list(members, known) : 0;
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(known[i].name, member->name) == 0) {
            return REAL(mc_members_add)(members, &known[i], changed, why);
        }
    }
    return REAL(mc_members_add)(members, member, changed, why);
}

void REAL(mc_members_set_quiet)(struct mc_members *members, uint64_t quiet_ns);
void __wrap_mc_members_set_quiet(struct mc_members *members, uint64_t quiet_ns);
void __wrap_mc_members_set_quiet(struct mc_members *members, uint64_t quiet_ns)
{
    REAL(mc_members_set_quiet)(members, mutant == ROOM_NEVER ? SL_NEVER_NS : quiet_ns);
}

/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
