/* runtime/net/fabric/verbs/gid.h - chooses one of a port's addresses. A pure function. */
#ifndef SL_FABRIC_VERBS_GID_H
#define SL_FABRIC_VERBS_GID_H

#include "runtime/base/sl_error.h"

enum sl_gid_kind { SL_GID_INFINIBAND, SL_GID_ROCE_V1, SL_GID_ROCE_V2 };
struct sl_gid {
    uint8_t raw[16];
    enum sl_gid_kind kind;
    uint32_t index;
};
/* RoCE v2 before v1, IPv4-mapped before IPv6, then the lowest index; never null or link-local.
 * NULL: none is usable. */
const struct sl_gid *sl_gid_choose(const struct sl_gid *gids, uint32_t count);

#endif
