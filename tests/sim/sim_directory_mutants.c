/* tests/sim/sim_directory_mutants.c - see the header. The linker directs calls between files here
 * (--wrap); without a mutant they pass through unchanged. */
#include "tests/sim/sim_directory_mutants.h"

#include "actors/transporter/publish/feed.h"
#include "runtime/net/directory/state.h"

enum mutant { MUTANT_NONE, RECORD_FIRST, TOLD_ONCE, REMOVED_UNTOLD, PEERS_UNASKED, MUTANTS };
static const struct sim_mutant mutants[MUTANTS] = {
    [RECORD_FIRST] = {1, "a node's record is written before its keys are sent again"},
    [TOLD_ONCE] = {1, "a server that returns is not sent the keys again"},
    [REMOVED_UNTOLD] = {0, "what a node removes it does not take back"},
    [PEERS_UNASKED] = {1, "while the server is silent, no peer is asked"},
};
static enum mutant mutant; /* of this process */

void sim_directory_mutants_init(void)
{
    mutant = (enum mutant)sim_mutant_number(MUTANTS);
}

int sim_directory_mutants_main(const struct sim_seeds *seeds)
{
    return sim_mutants_find(seeds, NULL, mutants, MUTANTS);
}

#define REAL(name) __real_##name
/* The linker's names. NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

void REAL(sl_directory_hold)(struct sl_directory *directory, bool held);
void __wrap_sl_directory_hold(struct sl_directory *directory, bool held);
void __wrap_sl_directory_hold(struct sl_directory *directory, bool held)
{
    REAL(sl_directory_hold)(directory, held && mutant != RECORD_FIRST);
}

void REAL(sl_directory_feed_republish)(struct sl_directory_feed *feed);
void __wrap_sl_directory_feed_republish(struct sl_directory_feed *feed);
void __wrap_sl_directory_feed_republish(struct sl_directory_feed *feed)
{
    if (mutant != TOLD_ONCE) {
        REAL(sl_directory_feed_republish)(feed);
    }
}

bool REAL(sl_directory_publish)(struct sl_directory *directory, uint64_t id, bool there);
bool __wrap_sl_directory_publish(struct sl_directory *directory, uint64_t id, bool there);
bool __wrap_sl_directory_publish(struct sl_directory *directory, uint64_t id, bool there)
{
    return (mutant == REMOVED_UNTOLD && !there) || REAL(sl_directory_publish)(directory, id, there);
}

sl_err REAL(sl_directory_lookup)(struct sl_directory *directory,
                                 const struct sl_directory_lookup *lookup);
sl_err __wrap_sl_directory_lookup(struct sl_directory *directory,
                                  const struct sl_directory_lookup *lookup);
sl_err __wrap_sl_directory_lookup(struct sl_directory *directory,
                                  const struct sl_directory_lookup *lookup)
{
    sl_err err = REAL(sl_directory_lookup)(directory, lookup);
    return mutant == PEERS_UNASKED && err == SL_ERR_UNREACHABLE ? SL_ERR_NOT_FOUND : err;
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
