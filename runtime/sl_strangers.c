/* runtime/sl_strangers.c - a list from the oldest to the youngest, and a count for each address.
 *
 * Addresses are counted by a keyed hash, in more counters than there are places: two that share one
 * are rare, nobody can choose them, and it costs them no more than part of their bound. */
#include "runtime/sl_strangers.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#define COUNTERS_A_PLACE 8u

struct stranger {
    uint32_t older, younger; /* places; SL_STRANGERS_NONE: the end */
    uint32_t counter;        /* SL_STRANGERS_NONE: nobody is here */
    bool named;
};

struct sl_strangers {
    struct stranger *at;
    uint32_t *counters;
    uint32_t place_count, counter_count, of_one_max, count;
    uint32_t oldest, youngest;
    uint64_t seed;
};

sl_err sl_strangers_create(uint32_t place_count, uint32_t of_one_max, struct sl_strangers **out,
                           struct sl_error *why)
{
    uint64_t seed = 0;
    if (place_count < 1 || place_count > SL_STRANGERS_PLACES_MAX || of_one_max < 1) {
        return sl_fail(why, SL_ERR_INVALID, "%u places, %u of an address", place_count, of_one_max);
    }
    if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed)) {
        return sl_fail_os(why, errno, "getrandom");
    }
    struct sl_strangers *made = calloc(1, sizeof(*made));
    uint32_t counter_count = place_count * COUNTERS_A_PLACE;
    if (made != NULL) {
        *made = (struct sl_strangers){.at = calloc(place_count, sizeof(*made->at)),
                                      .counters = calloc(counter_count, sizeof(*made->counters)),
                                      .place_count = place_count,
                                      .counter_count = counter_count,
                                      .of_one_max = of_one_max,
                                      .oldest = SL_STRANGERS_NONE,
                                      .youngest = SL_STRANGERS_NONE,
                                      .seed = seed};
    }
    if (made == NULL || made->at == NULL || made->counters == NULL) {
        sl_strangers_destroy(&made);
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u strangers", place_count);
    }
    for (uint32_t i = 0; i < place_count; i++) {
        made->at[i].counter = SL_STRANGERS_NONE;
    }
    *out = made;
    return SL_OK;
}

void sl_strangers_destroy(struct sl_strangers **strangers)
{
    if (*strangers != NULL) {
        free((*strangers)->at);
        free((*strangers)->counters);
        free(*strangers);
        *strangers = NULL;
    }
}

static uint32_t counter_of(const struct sl_strangers *strangers,
                           const struct sockaddr_storage *from)
{
    unsigned char bytes[12] = {0};
    if (from->ss_family == AF_INET) {
        memcpy(bytes, &((const struct sockaddr_in *)from)->sin_addr, 4);
    } else if (from->ss_family == AF_INET6) {
        const struct in6_addr *six = &((const struct sockaddr_in6 *)from)->sin6_addr;
        bool mapped = IN6_IS_ADDR_V4MAPPED(six);
        memcpy(bytes, mapped ? &six->s6_addr[12] : &six->s6_addr[0], mapped ? 4 : 8);
        bytes[8] = mapped ? 0 : 6;
    } else {
        bytes[8] = 1; /* all of them together */
    }
    return (uint32_t)(XXH3_64bits_withSeed(bytes, sizeof(bytes), strangers->seed) %
                      strangers->counter_count);
}

void sl_strangers_remove(struct sl_strangers *strangers, uint32_t place)
{
    SL_ASSERT(place < strangers->place_count);
    struct stranger *gone = &strangers->at[place];
    if (gone->counter == SL_STRANGERS_NONE) {
        return;
    }
    strangers->counters[gone->counter] -= gone->named ? 0 : 1;
    gone->counter = SL_STRANGERS_NONE;
    *(gone->older == SL_STRANGERS_NONE ? &strangers->oldest : &strangers->at[gone->older].younger) =
        gone->younger;
    *(gone->younger == SL_STRANGERS_NONE ? &strangers->youngest
                                         : &strangers->at[gone->younger].older) = gone->older;
    strangers->count--;
}

static uint32_t oldest_of(const struct sl_strangers *strangers, uint32_t counter)
{
    uint32_t place = strangers->oldest;
    while (strangers->at[place].counter != counter || strangers->at[place].named) {
        place = strangers->at[place].younger;
    }
    return place;
}

uint32_t sl_strangers_add(struct sl_strangers *strangers, uint32_t place,
                          const struct sockaddr_storage *from)
{
    SL_ASSERT(place < strangers->place_count);
    SL_ASSERT(strangers->at[place].counter == SL_STRANGERS_NONE);
    uint32_t counter = counter_of(strangers, from), goes = SL_STRANGERS_NONE;
    if (strangers->counters[counter] >= strangers->of_one_max) {
        goes = oldest_of(strangers, counter);
        sl_strangers_remove(strangers, goes);
    }
    strangers->at[place] = (struct stranger){
        .older = strangers->youngest, .younger = SL_STRANGERS_NONE, .counter = counter};
    *(strangers->youngest == SL_STRANGERS_NONE ? &strangers->oldest
                                               : &strangers->at[strangers->youngest].younger) =
        place;
    strangers->youngest = place;
    strangers->counters[counter]++;
    strangers->count++;
    return goes;
}

void sl_strangers_named(struct sl_strangers *strangers, uint32_t place)
{
    SL_ASSERT(place < strangers->place_count);
    struct stranger *at = &strangers->at[place];
    if (at->counter != SL_STRANGERS_NONE && !at->named) {
        at->named = true; /* or the first connection of a peer would cost it the second */
        strangers->counters[at->counter]--;
    }
}

/* Whether a goes before b, which is older. */
static bool goes_before(const struct sl_strangers *strangers, const struct stranger *a,
                        const struct stranger *b)
{
    if (a->named != b->named) {
        return b->named;
    }
    return strangers->counters[a->counter] > strangers->counters[b->counter];
}

uint32_t sl_strangers_push(struct sl_strangers *strangers)
{
    uint32_t goes = strangers->oldest;
    for (uint32_t i = goes; i != SL_STRANGERS_NONE; i = strangers->at[i].younger) {
        if (goes_before(strangers, &strangers->at[i], &strangers->at[goes])) {
            goes = i;
        }
    }
    if (goes != SL_STRANGERS_NONE) {
        sl_strangers_remove(strangers, goes);
    }
    return goes;
}

uint32_t sl_strangers_count(const struct sl_strangers *strangers)
{
    return strangers->count;
}
