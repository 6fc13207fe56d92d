/* runtime/net/fabric/verbs/verbs.h - the verbs back end. */
#ifndef SL_FABRIC_VERBS_VERBS_H
#define SL_FABRIC_VERBS_VERBS_H

#include "runtime/net/fabric/core/internal.h"

extern const struct fabric_backend sl_fabric_verbs;

#endif
