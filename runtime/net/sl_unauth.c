/* runtime/net/sl_unauth.c - see sl_unauth.h. Both tables are searched linearly: a listener
 * has some hundreds of places, and a connection costs the kernel more than that. */
#include "runtime/net/sl_unauth.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define NONE          SL_UNAUTH_NONE
#define ADDRESS_BYTES 12u

struct connection {
    uint64_t came;    /* order of arrival; 0: the place is free */
    uint32_t address; /* its index */
    bool named;
};

struct address {
    unsigned char bytes[ADDRESS_BYTES];
    uint32_t place_count; /* connections from here; 0: the entry is free */
    uint32_t count;       /* of these, connections without a name */
};

struct sl_unauth {
    struct connection *at;     /* place_count */
    struct address *addresses; /* place_count */
    uint32_t place_count, of_one_max;
    uint64_t came; /* last number used */
};

sl_err sl_unauth_create(uint32_t place_count, uint32_t of_one_max, struct sl_unauth **out,
                        struct sl_error *why)
{
    if (place_count < 1 || place_count > SL_UNAUTH_PLACES_MAX || of_one_max < 1) {
        return sl_fail(why, SL_ERR_INVALID, "%u places, %u an address", place_count, of_one_max);
    }
    struct sl_unauth *made = calloc(1, sizeof(*made));
    if (made != NULL) {
        *made = (struct sl_unauth){.at = calloc(place_count, sizeof(*made->at)),
                                   .addresses = calloc(place_count, sizeof(*made->addresses)),
                                   .place_count = place_count,
                                   .of_one_max = of_one_max};
    }
    if (made == NULL || made->at == NULL || made->addresses == NULL) {
        sl_unauth_destroy(&made);
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u connections", place_count);
    }
    *out = made;
    return SL_OK;
}

void sl_unauth_destroy(struct sl_unauth **unauth)
{
    if (*unauth != NULL) {
        free((*unauth)->at);
        free((*unauth)->addresses);
        free(*unauth);
        *unauth = NULL;
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
        bytes[8] = 1; /* other families count as one address */
    }
}

bool sl_unauth_same_address(const struct sockaddr_storage *one,
                            const struct sockaddr_storage *other)
{
    unsigned char mine[ADDRESS_BYTES], theirs[ADDRESS_BYTES];
    bytes_of(one, mine);
    bytes_of(other, theirs);
    return memcmp(mine, theirs, ADDRESS_BYTES) == 0;
}

/* Finds the entry of the address, or a free one. One is free, because the new connection's place
 * has none. */
static uint32_t address_of(const struct sl_unauth *unauth, const unsigned char bytes[ADDRESS_BYTES])
{
    uint32_t unused = NONE;
    for (uint32_t i = 0; i < unauth->place_count; i++) {
        const struct address *address = &unauth->addresses[i];
        if (address->place_count == 0) {
            unused = SL_MIN(unused, i);
        } else if (memcmp(address->bytes, bytes, ADDRESS_BYTES) == 0) {
            return i;
        }
    }
    SL_ASSERT(unused != NONE);
    return unused;
}

void sl_unauth_remove(struct sl_unauth *unauth, uint32_t place)
{
    SL_ASSERT(place < unauth->place_count);
    struct connection *gone = &unauth->at[place];
    if (gone->came != 0) {
        struct address *address = &unauth->addresses[gone->address];
        address->count -= gone->named ? 0 : 1;
        address->place_count--;
        gone->came = 0;
    }
}

/* Whether `a` is displaced before `b`: first those without a name, then those of the address with
 * more, then the older ones. */
static bool displaced_before(const struct sl_unauth *unauth, const struct connection *a,
                             const struct connection *b)
{
    uint32_t count_a = unauth->addresses[a->address].count;
    uint32_t count_b = unauth->addresses[b->address].count;
    return a->named != b->named ? b->named
           : count_a != count_b ? count_a > count_b
                                : a->came < b->came;
}

/* Removes the connection to displace, of this address or (NONE) of all. */
static uint32_t push(struct sl_unauth *unauth, uint32_t address)
{
    uint32_t goes = NONE;
    for (uint32_t i = 0; i < unauth->place_count; i++) {
        const struct connection *at = &unauth->at[i];
        if (at->came != 0 && (address == NONE || at->address == address) &&
            (goes == NONE || displaced_before(unauth, at, &unauth->at[goes]))) {
            goes = i;
        }
    }
    if (goes != NONE) {
        sl_unauth_remove(unauth, goes);
    }
    return goes;
}

uint32_t sl_unauth_displace(struct sl_unauth *unauth)
{
    return push(unauth, NONE);
}

uint32_t sl_unauth_add(struct sl_unauth *unauth, uint32_t place,
                       const struct sockaddr_storage *from)
{
    unsigned char bytes[ADDRESS_BYTES];
    SL_ASSERT(place < unauth->place_count && unauth->at[place].came == 0);
    bytes_of(from, bytes);
    uint32_t i = address_of(unauth, bytes), goes = NONE;
    struct address *address = &unauth->addresses[i];
    if (address->place_count == 0) {
        *address = (struct address){.count = 0};
        memcpy(address->bytes, bytes, ADDRESS_BYTES);
    } else if (address->count >= unauth->of_one_max) {
        goes = push(unauth, i);
    }
    unauth->at[place] = (struct connection){.came = ++unauth->came, .address = i};
    address->place_count++;
    address->count++;
    return goes;
}

void sl_unauth_named(struct sl_unauth *unauth, uint32_t place)
{
    SL_ASSERT(place < unauth->place_count);
    struct connection *at = &unauth->at[place];
    if (at->came != 0 && !at->named) {
        at->named = true; /* else a peer's first connection would hinder its second */
        unauth->addresses[at->address].count--;
    }
}
