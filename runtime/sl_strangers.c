/* runtime/sl_strangers.c - a list from the oldest to the youngest, and a count for each address.
 *
 * Addresses stand in a table of chains by a keyed hash, so that nobody can choose addresses that
 * make one chain long. There are never more of them than places. */
#include "runtime/sl_strangers.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#define NONE          SL_STRANGERS_NONE
#define ADDRESS_BYTES 12u

struct stranger {
    uint32_t older, younger; /* places; NONE: the end */
    uint32_t address;        /* its index; NONE: nobody is here */
    bool named;
};

struct address {
    unsigned char bytes[ADDRESS_BYTES];
    uint32_t next;        /* of its chain, or of those that are free; NONE: the end */
    uint32_t place_count; /* strangers from here; 0: it is free */
    uint32_t count;       /* of them, those without a name */
};

struct sl_strangers {
    struct stranger *at;       /* place_count */
    struct address *addresses; /* place_count */
    uint32_t *chains;          /* place_count; the first address of each */
    uint32_t free;             /* the first address that is nobody's */
    uint32_t place_count, of_one_max, count;
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
    if (made != NULL) {
        *made = (struct sl_strangers){.at = calloc(place_count, sizeof(*made->at)),
                                      .addresses = calloc(place_count, sizeof(*made->addresses)),
                                      .chains = calloc(place_count, sizeof(*made->chains)),
                                      .place_count = place_count,
                                      .of_one_max = of_one_max,
                                      .oldest = NONE,
                                      .youngest = NONE,
                                      .seed = seed};
    }
    if (made == NULL || made->at == NULL || made->addresses == NULL || made->chains == NULL) {
        sl_strangers_destroy(&made);
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u strangers", place_count);
    }
    for (uint32_t i = 0; i < place_count; i++) {
        made->at[i].address = NONE;
        made->addresses[i].next = i + 1 < place_count ? i + 1 : NONE;
        made->chains[i] = NONE;
    }
    *out = made;
    return SL_OK;
}

void sl_strangers_destroy(struct sl_strangers **strangers)
{
    if (*strangers != NULL) {
        free((*strangers)->at);
        free((*strangers)->addresses);
        free((*strangers)->chains);
        free(*strangers);
        *strangers = NULL;
    }
}

static void bytes_of(const struct sockaddr_storage *from, unsigned char bytes[ADDRESS_BYTES])
{
    memset(bytes, 0, ADDRESS_BYTES);
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
}

bool sl_strangers_same(const struct sockaddr_storage *one, const struct sockaddr_storage *other)
{
    unsigned char mine[ADDRESS_BYTES], theirs[ADDRESS_BYTES];
    bytes_of(one, mine);
    bytes_of(other, theirs);
    return memcmp(mine, theirs, ADDRESS_BYTES) == 0;
}

static uint32_t *chain_of(struct sl_strangers *strangers, const unsigned char bytes[ADDRESS_BYTES])
{
    return &strangers->chains[XXH3_64bits_withSeed(bytes, ADDRESS_BYTES, strangers->seed) %
                              strangers->place_count];
}

/* One more stranger is from there. Gives the index of the address. */
static uint32_t hold(struct sl_strangers *strangers, const struct sockaddr_storage *from)
{
    unsigned char bytes[ADDRESS_BYTES];
    bytes_of(from, bytes);
    uint32_t *chain = chain_of(strangers, bytes), i = *chain;
    while (i != NONE && memcmp(strangers->addresses[i].bytes, bytes, ADDRESS_BYTES) != 0) {
        i = strangers->addresses[i].next;
    }
    if (i == NONE) {
        i = strangers->free; /* there is one: the place that this is for holds none */
        SL_ASSERT(i != NONE);
        struct address *made = &strangers->addresses[i];
        strangers->free = made->next;
        *made = (struct address){.next = *chain};
        memcpy(made->bytes, bytes, ADDRESS_BYTES);
        *chain = i;
    }
    strangers->addresses[i].place_count++;
    return i;
}

static void let_go(struct sl_strangers *strangers, uint32_t i)
{
    struct address *address = &strangers->addresses[i];
    if (--address->place_count > 0) {
        return;
    }
    uint32_t *link = chain_of(strangers, address->bytes);
    while (*link != i) {
        link = &strangers->addresses[*link].next;
    }
    *link = address->next;
    address->next = strangers->free;
    strangers->free = i;
}

void sl_strangers_remove(struct sl_strangers *strangers, uint32_t place)
{
    SL_ASSERT(place < strangers->place_count);
    struct stranger *gone = &strangers->at[place];
    if (gone->address == NONE) {
        return;
    }
    strangers->addresses[gone->address].count -= gone->named ? 0 : 1;
    let_go(strangers, gone->address);
    gone->address = NONE;
    *(gone->older == NONE ? &strangers->oldest : &strangers->at[gone->older].younger) =
        gone->younger;
    *(gone->younger == NONE ? &strangers->youngest : &strangers->at[gone->younger].older) =
        gone->older;
    strangers->count--;
}

static uint32_t oldest_of(const struct sl_strangers *strangers, uint32_t address)
{
    uint32_t place = strangers->oldest;
    while (strangers->at[place].address != address || strangers->at[place].named) {
        place = strangers->at[place].younger;
    }
    return place;
}

uint32_t sl_strangers_add(struct sl_strangers *strangers, uint32_t place,
                          const struct sockaddr_storage *from)
{
    SL_ASSERT(place < strangers->place_count);
    SL_ASSERT(strangers->at[place].address == NONE);
    uint32_t address = hold(strangers, from), goes = NONE;
    if (strangers->addresses[address].count >= strangers->of_one_max) {
        goes = oldest_of(strangers, address);
        sl_strangers_remove(strangers, goes);
    }
    strangers->at[place] =
        (struct stranger){.older = strangers->youngest, .younger = NONE, .address = address};
    *(strangers->youngest == NONE ? &strangers->oldest
                                  : &strangers->at[strangers->youngest].younger) = place;
    strangers->youngest = place;
    strangers->addresses[address].count++;
    strangers->count++;
    return goes;
}

void sl_strangers_named(struct sl_strangers *strangers, uint32_t place)
{
    SL_ASSERT(place < strangers->place_count);
    struct stranger *at = &strangers->at[place];
    if (at->address != NONE && !at->named) {
        at->named = true; /* or the first connection of a peer would cost it the second */
        strangers->addresses[at->address].count--;
    }
}

/* Whether a goes before b, which is older. */
static bool goes_before(const struct sl_strangers *strangers, const struct stranger *a,
                        const struct stranger *b)
{
    if (a->named != b->named) {
        return b->named;
    }
    return strangers->addresses[a->address].count > strangers->addresses[b->address].count;
}

uint32_t sl_strangers_push(struct sl_strangers *strangers)
{
    uint32_t goes = strangers->oldest;
    for (uint32_t i = goes; i != NONE; i = strangers->at[i].younger) {
        if (goes_before(strangers, &strangers->at[i], &strangers->at[goes])) {
            goes = i;
        }
    }
    if (goes != NONE) {
        sl_strangers_remove(strangers, goes);
    }
    return goes;
}

uint32_t sl_strangers_count(const struct sl_strangers *strangers)
{
    return strangers->count;
}
