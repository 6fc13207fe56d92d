/* client/mooncake/daemons/flags_tables.c - the two tables. */
#include "client/mooncake/daemons/client_flags.h"

#define FLAG_ROW(name, kind, standard, low, high, choices, use, help) \
    {#name, MC_##kind, standard, low, high, choices, MC_##use, help},

const struct mc_flag mc_master_flags[MASTER_COUNT] = {MC_MASTER_FLAGS(FLAG_ROW)};
const struct mc_flag mc_client_flags[CLIENT_COUNT] = {MC_CLIENT_FLAGS(FLAG_ROW)};
