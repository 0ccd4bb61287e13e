//! The names of operators and aggregation stages.

/// The sources are `serverStatus` of mongod 6.0, which counts operators and stages, the manual (8.0), and mongosh's list
/// for completion. Those between servers (`$_internal…`) are omitted on purpose.
const NAMES: &str = "\
    $abs $accumulator $acos $acosh $add $addFields $addToSet $all $allElementsTrue $alwaysFalse $alwaysTrue $and \
    $anyElementTrue $arrayElemAt $arrayToObject $asin $asinh $atan $atan2 $atanh $avg $binarySize $bit $bitAnd \
    $bitNot $bitOr $bitXor $bitsAllClear $bitsAllSet $bitsAnyClear $bitsAnySet $bottom $bottomN $box $bsonSize \
    $bucket $bucketAuto $caseSensitive $ceil $center $centerSphere $changeStream $changeStreamSplitLargeEvent $cmp \
    $collStats $comment $concat $concatArrays $cond $const $convert $cos $cosh $count $covariancePop $covarianceSamp \
    $createObjectId $createUUID $currentDate $currentOp $dateAdd $dateDiff $dateFromParts $dateFromString \
    $dateSubtract $dateToParts $dateToString $dateTrunc $dayOfMonth $dayOfWeek $dayOfYear $degreesToRadians \
    $denseRank $densify $derivative $deserializeEJSON $diacriticSensitive $divide $documentNumber $documents $each \
    $elemMatch $encStrContains $encStrEndsWith $encStrStartsWith $eq $exists $exp $expMovingAvg $expr $facet $fill \
    $filter $first $firstN $floor $function $geoIntersects $geoNear $geoWithin $geometry $getField $graphLookup \
    $group $gt $gte $hash $hexHash $hour $ifNull $in $inc $indexOfArray $indexOfBytes $indexOfCP $indexStats \
    $integral $isArray $isNumber $isoDayOfWeek $isoWeek $isoWeekYear $jsonSchema $language $last $lastN $let $limit \
    $linearFill $listCatalog $listClusterCatalog $listLocalSessions $listSampledQueries $listSearchIndexes \
    $listSessions $literal $ln $locf $log $log10 $lookup $lt $lte $ltrim $map $match $max $maxDistance $maxN $median \
    $merge $mergeObjects $meta $millisecond $min $minDistance $minMaxScaler $minN $minute $mod $month $mul $multiply \
    $natural $ne $near $nearSphere $nin $nor $not $objectToArray $options $or $out $percentile $planCacheStats \
    $polygon $pop $position $pow $project $pull $pullAll $push $querySettings $queryStats $radiansToDegrees $rand \
    $range $rank $rankFusion $redact $reduce $regex $regexFind $regexFindAll $regexMatch $rename $replaceAll \
    $replaceOne $replaceRoot $replaceWith $rerank $reverseArray $round $rtrim $sample $sampleRate $score \
    $scoreFusion $search $searchMeta $second $serializeEJSON $set $setDifference $setEquals $setField \
    $setIntersection $setIsSubset $setOnInsert $setUnion $setWindowFields $shardedDataDistribution $shift $sigmoid \
    $similarityCosine $similarityDotProduct $similarityEuclidean $sin $sinh $size $skip $slice $sort $sortArray \
    $sortByCount $split $sqrt $stdDevPop $stdDevSamp $strLenBytes $strLenCP $strcasecmp $substr $substrBytes \
    $substrCP $subtract $subtype $sum $switch $tan $tanh $text $toArray $toBool $toDate $toDecimal $toDouble \
    $toHashedIndexKey $toInt $toLong $toLower $toObject $toObjectId $toString $toUUID $toUpper $top $topN $trim \
    $trunc $tsIncrement $tsSecond $type $unionWith $uniqueDocs $unset $unsetField $unwind $vectorSearch $week $where \
    $within $year $zip";

/// The operators and stages that docward knows; a newer server has more.
pub fn operators() -> impl Iterator<Item = &'static str> {
    NAMES.split(' ')
}
