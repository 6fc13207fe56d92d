/* runtime/net/fabric/verbs/gid.c - see gid.h: chooses a port's address. */
#include "runtime/net/fabric/verbs/gid.h"

#include <string.h>

static bool gid_is_ipv4(const struct sl_gid *gid)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(gid->raw, mapped, sizeof(mapped)) == 0;
}

/* 0: not usable. */
static unsigned gid_rank(const struct sl_gid *gid)
{
    static const uint8_t zeros[16];
    bool link_local = gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
    bool ipv4 = gid_is_ipv4(gid);
    bool nothing = memcmp(gid->raw, zeros, sizeof(zeros)) == 0 ||
                   (ipv4 && memcmp(gid->raw + 12, zeros, 4) == 0);
    /* 169.254/16 is link-local in IPv4. */
    link_local |= ipv4 && gid->raw[12] == 169 && gid->raw[13] == 254;
    if (nothing || link_local || gid->kind == SL_GID_INFINIBAND) {
        return 0;
    }
    return (gid->kind == SL_GID_ROCE_V2 ? 2u : 0u) + (ipv4 ? 2u : 1u);
}

const struct sl_gid *sl_gid_choose(const struct sl_gid *gids, uint32_t count)
{
    const struct sl_gid *best = NULL;
    for (uint32_t i = 0; i < count; i++) {
        unsigned rank = gid_rank(&gids[i]), best_rank = best == NULL ? 0 : gid_rank(best);
        if (rank > best_rank || (rank > 0 && rank == best_rank && gids[i].index < best->index)) {
            best = &gids[i];
        }
    }
    return best;
}
