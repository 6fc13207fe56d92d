sl_test(cluster_transfer_test LABEL cluster SOURCES cluster/transfer_test.c support/fabric_end.c support/fabric_remote.c
    support/netns.c LIBS sluice_transporter TIMEOUT 900)
