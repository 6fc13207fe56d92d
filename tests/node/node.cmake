foreach(suite supervisor replay disks disk_start version away handover prefetch)
    sl_node_test(${suite} LABEL node SCRIPT node/${suite}_test.py TIMEOUT 900)
endforeach()
