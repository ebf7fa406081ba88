# The installable library: the objects of all rooms in one archive, and the program over its public headers.
set(objects "")
foreach(room ${ANTHESIS_ROOMS})
  list(APPEND objects $<TARGET_OBJECTS:anthesis_${room}>)
endforeach()
