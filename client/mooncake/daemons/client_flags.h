/* client/mooncake/daemons/client_flags.h - the flags of mooncake_client, named as those of
 * Mooncake's. */
#ifndef SL_CLIENT_MOONCAKE_DAEMONS_CLIENT_FLAGS_H
#define SL_CLIENT_MOONCAKE_DAEMONS_CLIENT_FLAGS_H

#include "client/mooncake/daemons/master_flags.h"

#define MC_IN_PROCESS "values are read and written in shared memory, by the process that uses them"

/* X(name, KIND, default, low, high, choices, USE, help) */
#define MC_CLIENT_FLAGS(X)                                                                         \
    X(config_path, TEXT, "", 0, MC_PATH_BYTES, NULL, USED,                                         \
      "JSON or YAML file with these names; the command line wins")                                 \
    X(host, TEXT, "", 0, 255, NULL, USED,                                                          \
      "address that is bound (empty: 127.0.0.1); with the port the name of what is contributed "   \
      "(the host name for none and for 0.0.0.0)")                                                  \
    X(port, COUNT, "50052", 1, 65535, NULL, USED,                                                  \
      "bound, and answered with one line of JSON; setup_dummy(..., \"ip:PORT\") finds the node "   \
      "by it")                                                                                     \
    X(metadata_server, TEXT, "http://127.0.0.1:8080/metadata", 0, 1023, NULL, IGNORED,             \
      "a node needs none")                                                                         \
    X(master_server_address, TEXT, "127.0.0.1:50051", 1, 255, NULL, USED,                          \
      "HOST:PORT of the mooncake_master of this host ($SLUICE_INSTANCE wins)")                     \
    X(protocol, TEXT, "tcp", 0, 64, NULL, IGNORED, MC_IN_PROCESS)                                  \
    X(device_names, TEXT, "", 0, 1023, NULL, IGNORED, MC_IN_PROCESS)                               \
    X(global_segment_size, SIZE, "4 GB", 0, MC_SIZE_MAX, NULL, USED,                               \
      "how much the node may hold for this process, as long as it runs; 0: nothing")               \
    X(local_buffer_size, SIZE, "0", 0, MC_SIZE_MAX, NULL, IGNORED, MC_IN_PROCESS)                  \
    X(threads, COUNT, "1", 0, 65535, NULL, IGNORED, MC_IN_PROCESS)                                 \
    X(tenant_id, TEXT, "default", 0, 255, NULL, IGNORED, "what is contributed is for all tenants") \
    X(enable_offload, BOOL, "false", 0, 1, NULL, USED,                                             \
      "ends with an error when the node has no disk tier: mooncake_master --enable_offload")       \
    X(start_offload_rpc_server, BOOL, "true", 0, 1, NULL, IGNORED, MC_IN_PROCESS)                  \
    X(enable_http_server, BOOL, "false", 0, 1, NULL, USED, "serve /health and /metrics")           \
    X(http_port, COUNT, "9300", 1, 65535, NULL, USED, "their port")                                \
    MC_LOGGING_FLAGS(X)

#define MC_CLIENT_ENUM(name, kind, standard, low, high, choices, use, help) CLIENT_##name,
enum mc_client_flag { MC_CLIENT_FLAGS(MC_CLIENT_ENUM) CLIENT_COUNT };

extern const struct mc_flag mc_client_flags[CLIENT_COUNT];

#endif
