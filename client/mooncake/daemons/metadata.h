/* client/mooncake/daemons/metadata.h - texts under keys over HTTP, for transfer engines that look
 * each other up: GET, PUT and DELETE of /metadata?key=KEY. In memory alone. */
#ifndef SL_CLIENT_MOONCAKE_DAEMONS_METADATA_H
#define SL_CLIENT_MOONCAKE_DAEMONS_METADATA_H

#include "client/mooncake/daemons/http.h"

#define MC_METADATA_KEYS_MAX  (1u << 20)
#define MC_METADATA_BYTES_MAX (512 * SL_MIB)
#define MC_METADATA_KEY_BYTES 4096u

struct mc_metadata; /* opaque */
/* Serves on a listening descriptor (taken, also on failure); keys and values have at most bytes_max
 * together (MC_METADATA_BYTES_MAX but in tests). Errors as mc_http_start. */
sl_err mc_metadata_start(int fd, uint64_t bytes_max, const struct mc_http_guard *guard,
                         struct mc_metadata **out, struct sl_error *why);
/* As mc_http_tend; metadata may be NULL. */
void mc_metadata_tend(struct mc_metadata *metadata, uint64_t now_ns);
void mc_metadata_stop(struct mc_metadata **metadata);

#endif
